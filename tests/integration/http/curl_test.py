#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Transcripts of curl, as it is, against a real afdd.

    curl_test.py BIN_DIR [unittest arguments]

Goal: every form of an answer is what it was, to the byte: fields, their order, marks of a stream.
Method: the commands of curl_transcripts.txt, in a shell. Oracle: what stands there below each,
where only what must differ may.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from chat_model import make_chat_model
from instance import Instance

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
TRANSCRIPTS = pathlib.Path(__file__).parent / "curl_transcripts.txt"
PATIENCE_S = 60
# What a placeholder stands for, by its name without a number behind it.
MEANINGS = {
    "completion": r"cmpl-[0-9a-f]{32}", "chat": r"chatcmpl-[0-9a-f]{32}", "time": r"\d{10}",
    "fingerprint": r"afd-\d+\.\d+\.\d+[\w+.-]*", "count": r"\d+", "number": r"-?\d+(\.\d+)?",
    "text": r'([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*',
}


def pattern_of(expected: str) -> re.Pattern:
    """The first <name> is what it means, the others are what it was."""
    parts, seen = [], set()
    for part in re.split(r"(<[a-z_0-9]+>)", expected):
        name = part.strip("<>")
        kind = re.sub(r"_\d+$", "", name)
        if part == name or kind not in MEANINGS:
            parts.append(re.escape(part))
        elif name in seen:
            parts.append(f"(?P={name})")
        else:
            seen.add(name)
            parts.append(f"(?P<{name}>{MEANINGS[kind]})")
    return re.compile("".join(parts))


def transcripts() -> list[tuple[str, str, str]]:
    """The command, status and type, and the body of each."""
    blocks = TRANSCRIPTS.read_text(encoding="utf-8").split("\n\n")
    found = []
    for block in blocks:
        lines = block.strip("\n").split("\n")
        if lines[0].startswith("$ "):
            body = "\n".join("" if line == "." else line for line in lines[2:])
            found.append((lines[0][2:], lines[1], body))
    return found


class CurlTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        model = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="afd-chat-"))
        cls.instance = cls.enterClassContext(
            Instance(BIN, "--model", make_chat_model(pathlib.Path(model)), "--http-model", "demo"))

    def test_transcripts(self) -> None:
        commands = transcripts()
        self.assertGreater(len(commands), 20)
        for command, head, body in commands:
            with self.subTest(command):
                done = subprocess.run(
                    ["bash", "-c", command + r" -w '\n%{http_code} %{content_type}'"],
                    env={**os.environ, "URL": self.instance.url}, capture_output=True, text=True,
                    timeout=PATIENCE_S, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                answer, _, said = done.stdout.rpartition("\n")
                self.assertEqual(said, head, answer)
                self.assertRegex(answer.removesuffix("\n"), f"^{pattern_of(body).pattern}\\Z")


if __name__ == "__main__":
    unittest.main(verbosity=2)
