#!/usr/bin/env python3
"""scripts/netem-kernel says what is missing, and takes this kernel where it will do.

Method: a PATH with nothing but the shell's tools, and an unshare that says whether there is netem.
.ci/newcomer runs hosts on the other kernel. Oracle: exit codes and messages.
"""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "netem-kernel"


def run(has_netem: bool, *arguments: str) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as folder:
        tools = pathlib.Path(folder)
        (tools / "unshare").write_text(f"#!/bin/sh\nexit {0 if has_netem else 1}\n", "utf-8")
        (tools / "unshare").chmod(0o755)
        for tool in ("bash", "sh", "sed", "env"):
            os.symlink(f"/usr/bin/{tool}", tools / tool)
        return subprocess.run([SCRIPT, *arguments], env={"PATH": folder}, capture_output=True,
                              text=True, check=False)


class NetemKernelTest(unittest.TestCase):
    def test_this_kernel_is_taken_where_it_has_netem(self):
        done = run(True, "sh", "-c", "echo $AFD_NETEM_REQUIRED $1; exit 7", "sh", "two words")
        self.assertEqual((done.returncode, done.stdout), (7, "1 two words\n"), done.stderr)

    def test_without_another_kernel_it_says_how_to_get_one(self):
        done = run(False, "true")
        self.assertEqual(done.returncode, 3)
        self.assertIn("user-mode-linux is missing; scripts/setup --netem installs it", done.stderr)

    def test_without_a_command_it_says_how_it_is_called(self):
        for arguments in ((), ("--momery", "1G", "true")):
            done = run(True, *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn("scripts/netem-kernel [--memory SIZE] COMMAND", done.stderr)
        self.assertIn("unknown option --momery", done.stderr)


if __name__ == "__main__":
    unittest.main()
