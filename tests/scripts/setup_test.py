#!/usr/bin/env python3
"""scripts/setup wants what its options say, also several together.

Method: a dpkg-query that knows no package, so that --check names every package that is wanted.
Oracle: the lists in scripts/packages/, put together by hand.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
WANTED = {
    (): ["product"],
    ("--runtime",): ["runtime"],
    ("--runtime", "--hosts"): ["runtime", "product", "hosts"],
    ("--hosts",): ["product", "hosts"],
    ("--python",): ["product", "python"],
    ("--tests",): ["product", "hosts", "python", "tests"],
    ("--hosts", "--python"): ["product", "hosts", "python"],
    ("--python", "--hosts"): ["product", "hosts", "python"],
    ("--netem",): ["product", "hosts", "python", "tests", "netem"],
    ("--bench", "--clients"): ["product", "hosts", "python", "tests", "clients", "bench"],
    ("--ci", "--hosts"): ["product", "hosts", "python", "tests", "bench", "ci"],
}


def packages(name: str) -> list[str]:
    lines = (SCRIPTS / "packages" / f"{name}.txt").read_text("utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def check(*options: str) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as folder:
        nothing = pathlib.Path(folder) / "dpkg-query"
        nothing.write_text("#!/bin/sh\n", "utf-8")
        nothing.chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        return subprocess.run([SCRIPTS / "setup", *options, "--check"], env=environment,
                              capture_output=True, text=True, timeout=30, check=False)


class SetupTest(unittest.TestCase):
    def test_options_together_want_the_lists_of_all(self) -> None:
        for options, lists in WANTED.items():
            done = check(*options)
            self.assertEqual(done.returncode, 1, done.stderr)
            wanted = [package for name in lists for package in packages(name)]
            self.assertEqual(done.stdout, f"setup: missing: {' '.join(wanted)}\n", options)

    def test_an_unknown_option_shows_the_known_ones(self) -> None:
        done = check("--all")
        self.assertEqual(done.returncode, 2)
        self.assertIn("scripts/setup --hosts", done.stderr)
        self.assertIn("Several of them together install the lists of all.", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
