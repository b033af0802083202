#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: the rules of the protocol between machines (docs/protocol.md, R13 ... R16) are enough, and
each is needed.

Method: SPIN searches every state of docs/protocol/network.pml, for several numbers of processes,
broken connections and deaths; then once more with one rule left out. Oracle: no violation with all
rules; a counterexample without any of them. Usage: network_model_test.py SPIN MODEL
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SPIN, MODEL = "spin", "docs/protocol/network.pml"
DEATHS = ["SESSION_LIVES=2", "RANK_LIVES=2"]
GIVES = ["RANKS=2", "GIVES"]
WHOLE = [
    ["BREAKS=2", "ROUNDS=3"],
    ["SESSION_LIVES=2", "ROUNDS=3"],
    ["RANK_LIVES=2", "BREAKS=2"],
    DEATHS,
    GIVES + ["ROUNDS=3"],
    GIVES + ["RANK_LIVES=2"],
    GIVES + ["SESSION_LIVES=2", "BREAKS=0", "ROUNDS=1"],
]
# The rule left out, and where that shows.
LEFT_OUT = {
    "NO_EPOCH": DEATHS,
    "NO_CONNECTION": DEATHS,
    "FORGETS_EPOCH": DEATHS,
    "FLAG_FIRST": DEATHS,
    "STORES_AGAIN": DEATHS,
    "NO_COUNT": DEATHS,
    "NO_RESULT_COUNT": DEATHS,
    "COUNTS_ON": DEATHS,
    "NO_RESEND": DEATHS,
    "NO_KEEP": DEATHS,
    "NO_TAKEOVER": DEATHS,
    "NO_FENCE": GIVES,
    "STORES_ADOPTED": GIVES,
}


def search(names: list[str], goal: list[str], option: str = "-X") -> str:
    """What the verifier says of the model with these names defined."""
    with tempfile.TemporaryDirectory() as folder:
        def run(*command: str) -> str:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
            return done.stdout
        run(SPIN, *(f"-D{name}" for name in names), "-a", MODEL)
        run("cc", "-O1", "-w", "-DVECTORSZ=2048", *goal, "-o", "pan", "pan.c")
        return run("./pan", option, "-m100000")


class NetworkModelTest(unittest.TestCase):
    def test_the_rules_are_enough(self):
        for names in WHOLE:
            with self.subTest(names=names):
                said = search(names, ["-DSAFETY", "-DCOLLAPSE"])
                self.assertIn("errors: 0", said)
                self.assertNotIn("Search not completed", said)
                self.assertNotIn("search depth too small", said)

    def test_every_run_ends(self):
        # Nothing is marked as progress, so any cycle would be one without it.
        for names in (["SESSION_LIVES=2"], ["RANK_LIVES=2"], GIVES):
            with self.subTest(names=names):
                said = search(names, ["-DNP"], "-l")
                self.assertIn("errors: 0", said)
                self.assertNotIn("search depth too small", said)

    def test_each_rule_is_needed(self):
        for rule, names in LEFT_OUT.items():
            with self.subTest(rule=rule):
                self.assertIn("assertion violated", search(names + [rule],
                                                           ["-DSAFETY", "-DCOLLAPSE"]))


if __name__ == "__main__":
    SPIN, MODEL = sys.argv[1], str(Path(sys.argv[2]).resolve())
    unittest.main(argv=sys.argv[:1])
