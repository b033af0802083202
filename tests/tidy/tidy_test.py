#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: each rule of tidy.py catches a file that breaks it, so that its silence means something.

Method: a throw-away git tree with one offending line per case. Oracle: tidy.py exits with 1 and
names the offence; the clean tree passes.
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TIDY = Path(__file__).with_name("tidy.py")
HEADER = "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n"


class TidyTest(unittest.TestCase):
    def run_tidy(self, files: dict[str, str]) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            subprocess.run(["git", "init", "-q", folder], check=True)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return subprocess.run([sys.executable, str(TIDY), folder],
                                  capture_output=True, text=True, check=False)

    def expect_violation(self, name: str, line: str, message: str) -> None:
        result = self.run_tidy({name: HEADER + line + "\n"})
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(message, result.stdout)

    def test_clean_tree_passes(self):
        result = self.run_tidy({"ops/a.h": HEADER + '#include "ops/b.h"\n'})
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_include_directions(self):
        self.expect_violation("ops/a.h", '#include "daemon/b.h"', "ops/ may not include daemon/b.h")
        self.expect_violation("clients/a.h", '#include "schedule/b.h"', "clients/ may not include")
        self.expect_violation("ops/a.h", '#include "schedule/segment.h"', "ops/ may see only")
        self.expect_violation("model/a.h", '#include "proto/client.pb.h"', "protocol messages")
        self.expect_violation("ops/a.h", '#include "../b.h"', "from the root")

    def test_banned_words(self):
        self.expect_violation("ops/a.h", "throw 1;", "'throw'")
        self.expect_violation("daemon/a.h", "flag.load();", "spell out the order")
        self.expect_violation("daemon/a.h", "flag.notify_all();", "never std::atomic::wait")
        self.expect_violation("schedule/a.h", "std::atomic_thread_fence(x);", "on the operation")
        self.expect_violation("ops/a.h", "// " + "TO" + "DO later", "doubts are issues")

    def test_memory_order_needs_a_partner(self):
        self.expect_violation("daemon/a.h", "\n\n\nx.load(std::memory_order_acquire);", "partner")

    def test_shape(self):
        self.expect_violation("ops/a.h", "// " + "x" * 100, "columns")
        self.expect_violation("ops/a.h", "\n" * 600, "is it one noun?")
        self.assertIn("no SPDX line", self.run_tidy({"ops/a.h": "#pragma once\n"}).stdout)

    def test_dead_sources(self):
        self.expect_violation("ops/a.cc", "", "named by no CMakeLists.txt")


if __name__ == "__main__":
    unittest.main()
