#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: docs/protocol/model_check.py takes no search for a proof that ended at a bound.

Method: the smallest model, with all the memory that it needs, and with less. Oracle: the exit code
and the lines of each search. Usage: model_check_test.py MODEL_CHECK
"""

import subprocess
import sys
import unittest

MODEL_CHECK = "docs/protocol/model_check.py"
AS_IT_IS = "poison with CRASHES=1 ROUNDS=3:"


def check(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, MODEL_CHECK, *arguments, "poison"], capture_output=True,
                          text=True, check=False)


class ModelCheckTest(unittest.TestCase):
    def test_a_search_to_the_end_is_a_proof(self):
        done = check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"{AS_IT_IS} no error (28242 states)", done.stdout)
        self.assertIn("poison without ALONE: assertion violated", done.stdout)

    def test_a_search_that_ran_out_of_memory_is_none(self):
        done = check("--memory", "60")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        text = done.stdout.replace("NOT AS EXPECTED ", "")
        self.assertIn(f"{AS_IT_IS} the search was not completed", text)
        self.assertEqual(done.stdout.count("NOT AS EXPECTED"), len(done.stdout.splitlines()))


if __name__ == "__main__":
    MODEL_CHECK = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
