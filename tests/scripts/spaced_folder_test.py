#!/usr/bin/env python3
"""A clone in a folder whose name has a space can be built.

Method: CMake configures the project, seen through a link, for a build in such a folder; nothing is
compiled. Oracle: the shell's own rules, by which no command has a part of that folder as a word.
"""
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class SpacedFolderTest(unittest.TestCase):
    def test_every_command_quotes_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            clone, build = pathlib.Path(folder, "a clone"), pathlib.Path(folder, "a build")
            clone.symlink_to(ROOT)
            done = subprocess.run(["cmake", "-G", "Ninja", "-S", clone, "-B", build,
                                   "-DAFD_BUILD_TESTS=OFF", "-DAFD_BUILD_BENCH=OFF"],
                                  capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            commands = subprocess.run(["ninja", "-C", build, "-t", "commands"], capture_output=True,
                                      text=True, timeout=60, check=True).stdout.splitlines()
            parts = f"{folder}/a"
            split = [line for line in commands
                     if any(word.endswith(parts) for word in shlex.split(line))]
            self.assertEqual(split, [])
            whole = sum(any(f"{parts} " in word for word in shlex.split(line)) for line in commands)
            self.assertGreater(whole, 0)


if __name__ == "__main__":
    sys.exit(unittest.main())
