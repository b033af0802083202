# SPDX-License-Identifier: Apache-2.0
"""Goal: logits that no memory holds are refused before they are made. Method: a model that says its
vocabulary is as large as one may be, and more ids than any machine has room for. Oracle: the exit
code; a process that the kernel ends has another.

    afd_logits_test.py AFD_LOGITS MODEL
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

AFD_LOGITS, MODEL = "afd-logits", ""


class TooManyLogits(unittest.TestCase):
    def test_are_refused_with_the_memory_that_they_take(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file in pathlib.Path(MODEL).iterdir():
                (folder / file.name).symlink_to(file.resolve())
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").unlink()
            config.update(vocab_size=1 << 24, max_position_embeddings=1 << 24)
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "ids.txt").write_text("1 " * 1_000_000)
            for more in ([], ["--reference"]):
                with self.subTest(more=more):
                    done = subprocess.run(
                        [AFD_LOGITS, folder, "--ids", folder / "ids.txt", "--out", folder / "out",
                         *more], capture_output=True, text=True, check=False, timeout=60)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertRegex(done.stderr,
                                     r"^afd-logits: the logits of 1000000 tokens, 16777216 each, "
                                     r"take 62500\.0 GiB of memory; this machine has [0-9.]+ GiB\. "
                                     r"Give fewer ids\n$")
                    self.assertFalse((folder / "out").exists())


if __name__ == "__main__":
    AFD_LOGITS, MODEL = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
