#!/usr/bin/env python3
"""Every program says which version it is. Oracle: its name and that of the project, on stdout.

Usage: versions_test.py DIRECTORY_OF_PROGRAMS VERSION
"""
import pathlib
import subprocess
import sys
import unittest

PROGRAMS = ("afd-attention-worker", "afd-ffn-worker", "afd-link", "afd-load", "afd-logits", "afd-op",
            "afd-quantize", "afd-stand-in", "afdctl", "afdd")
DIRECTORY, VERSION = pathlib.Path(sys.argv[1]), sys.argv[2]


class VersionsTest(unittest.TestCase):
    def test_every_program_says_its_own(self):
        for name in PROGRAMS:
            with self.subTest(name=name):
                done = subprocess.run([DIRECTORY / name, "--version"], capture_output=True,
                                      text=True, check=False)
                self.assertEqual((done.returncode, done.stdout, done.stderr),
                                 (0, f"{name} {VERSION}\n", ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
