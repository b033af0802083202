#!/usr/bin/env python3
"""Every program says which version it is, and fails where what it says is lost.

Usage: versions_test.py DIRECTORY_OF_PROGRAMS VERSION
"""
import fcntl
import os
import pathlib
import subprocess
import sys
import time
import unittest

STARTED_BY_HAND = ("afd-link", "afd-load", "afd-logits", "afd-op", "afd-quantize", "afdctl", "afdd")
PROGRAMS = STARTED_BY_HAND + ("afd-attention-worker", "afd-ffn-worker", "afd-stand-in")
DIRECTORY, VERSION = pathlib.Path(sys.argv[1]), sys.argv[2]
MODEL = pathlib.Path(__file__).parents[2] / "demo_model"
PLAN = ("--hidden", "64", "--intermediate", "64", "--experts", "8", "--top-k", "2", "--tokens", "8")


class VersionsTest(unittest.TestCase):
    def test_every_program_says_its_own(self):
        for name in PROGRAMS:
            with self.subTest(name=name):
                done = subprocess.run([DIRECTORY / name, "--version"], capture_output=True,
                                      text=True, check=False)
                self.assertEqual((done.returncode, done.stdout, done.stderr),
                                 (0, f"{name} {VERSION}\n", ""))

    def test_every_program_is_named_where_it_says_how_it_is_used(self):
        for name in PROGRAMS:
            with self.subTest(name=name):
                done = subprocess.run([DIRECTORY / name, "--help"], capture_output=True,
                                      text=True, check=False)
                self.assertRegex(done.stdout, f"(?m)^Usage: {name} ")


class StandardOutputTest(unittest.TestCase):
    # Goal: nobody takes lost results for a success. Method: a standard output without room.
    # Oracle: exit code 1, and one line that says why.
    def test_every_program_fails_if_its_output_is_lost(self):
        prints = [(name, "--help") for name in PROGRAMS]
        prints += [(name, "--version") for name in PROGRAMS]
        prints += [("afd-op", "list"), ("afd-op", "describe", "moe_gating_top_k"),
                   ("afd-op", "moe-matrix"), ("afd-op", "moe-plan", *PLAN),
                   ("afd-quantize", MODEL, "--experts", "int8", "--dry-run")]
        for name, *arguments in prints:
            with self.subTest(name=name, arguments=arguments), open("/dev/full", "w") as full:
                done = subprocess.run([DIRECTORY / name, *arguments], stdout=full,
                                      stderr=subprocess.PIPE, text=True, check=False)
                speaker = "error" if name in ("afdctl", "afd-load") else name
                self.assertEqual(done.returncode, 1, done.stderr)
                # What is lost before the end has no reason any more.
                self.assertRegex(done.stderr,
                                 f"^{speaker}: cannot write standard output: "
                                 "(No space left on device|not all of it got through)\n$")

    # Goal: what is printed goes into no file that a program opens. Method: standard error is
    # closed, and the program waits since nobody reads its help. Oracle: what the kernel says of
    # its standard error.
    def test_a_standard_error_that_is_closed_goes_to_dev_null(self):
        for name in STARTED_BY_HAND:
            reader, writer = os.pipe()
            with self.subTest(name=name), open(reader, "rb"), open(writer, "wb") as output:
                os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)))
                with subprocess.Popen([DIRECTORY / name, "--help"], stdout=output,
                                      preexec_fn=lambda: os.close(2)) as program:
                    found = self.standard_error_of(program)
                    program.kill()
                self.assertEqual(found, "/dev/null")

    @staticmethod
    def standard_error_of(program: subprocess.Popen) -> str:
        # Libraries that are loaded are there for a moment.
        found, end = "", time.monotonic() + 20
        while found != "/dev/null" and time.monotonic() < end:
            try:
                found = os.readlink(f"/proc/{program.pid}/fd/2")
            except FileNotFoundError:
                found = "none"
            time.sleep(0.01)
        return found


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
