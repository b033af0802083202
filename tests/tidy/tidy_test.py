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
LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = LICENCE + "#pragma once\n\n// What it is.\n\n"


class TidyTest(unittest.TestCase):
    def run_tidy(self, files: dict[str, str], *flags: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            subprocess.run(["git", "init", "-q", folder], check=True)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return subprocess.run([sys.executable, str(TIDY), *flags, folder],
                                  capture_output=True, text=True, check=False)

    def expect_violation(self, name: str, line: str, message: str) -> None:
        start = HEADER if name.endswith(".h") else LICENCE
        result = self.run_tidy({name: start + line + "\n"})
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(message, result.stdout)

    def test_clean_tree_passes(self):
        result = self.run_tidy({"ops/cpu/a.h": HEADER + '#include "ops/format/b.h"\n'})
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_include_directions(self):
        self.expect_violation("ops/cpu/a.h", '#include "daemon/loop/b.h"',
                              "ops/cpu/ may not include daemon/loop/b.h")
        self.expect_violation("clients/a.h", '#include "schedule/b.h"', "clients/ may not include")
        self.expect_violation("ops/operators/a.h", '#include "schedule/shared_memory/segment.h"', "ops/ may see only")
        self.expect_violation("model/decoder/a.h", '#include "proto/client.pb.h"', "protocol messages")
        self.expect_violation("ops/a.h", '#include "../b.h"', "from the root")

    def test_folders_have_a_row_in_the_table(self):
        self.expect_violation("attic/a.h", '#include "proto/b.h"', "in no row of ALLOWED_INCLUDES")
        self.expect_violation("ops/tensor/a.h", '#include "ops/linear/b.h"',
                              "ops/tensor/ may not include ops/linear/b.h")
        self.expect_violation("ops/tensor/a.h", '#include "b.h"', "with its folder")

    def test_folders_have_their_namespaces(self):
        filled = "namespace {} {{\nint a;\n}}"
        self.expect_violation("tools/a.h", filled.format("afd"),
                              "tools/a.h:6: namespace afd; tools/ is in afd::tools")
        self.expect_violation("proto/a.h", filled.format("afd::daemon"), "proto/ is in afd")
        self.expect_violation("ops/cpu/a.h", filled.format("afd::operators"), "ops/ is in afd::ops")
        self.expect_violation("tests/clients/a.h", filled.format("afd::testing"),
                              "tests/ is in that of what it tests, or afd::test")
        for name, text in (
                ("ops/cpu/a.h", filled.format("afd::ops::cpu")),
                ("proto/a.h", filled.format("afd")),
                ("tests/clients/a.h", filled.format("afd::client")),
                ("tests/clients/a.h", filled.format("afd::test")),
                ("tools/a.h", "namespace afd {\nclass A;  // Ours.\nstruct B;\n"
                              "template <typename T> class C;\n}")):
            result = self.run_tidy({name: HEADER + text + "\n"})
            self.assertEqual(result.returncode, 0, result.stdout)

    def expect_cycle(self, files: dict[str, str], message: str) -> None:
        result = self.run_tidy({name: HEADER + f'#include "{included}"\n'
                                for name, included in files.items()})
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(message, result.stdout)

    def test_cycles(self):
        self.expect_cycle({"proto/a.h": "proto/b.h", "proto/b.h": "proto/a.h"},
                          "cycle of includes among files: proto/a.h <-> proto/b.h")
        self.expect_cycle({"proto/a.h": "proto/b.h", "proto/b.cc": "proto/a.h"},
                          "among pairs of header and source: proto/a <-> proto/b")
        self.expect_cycle({"ops/cpu/a.h": "ops/format/b.h", "ops/format/c.h": "ops/cpu/d.h"},
                          "among folders: ops/cpu <-> ops/format")
        self.expect_cycle({"proto/a.h": "schedule/b.h", "schedule/c.h": "proto/d.h"},
                          "among top-level folders: proto <-> schedule")

    def test_subfolders_are_listed_below_what_they_include(self):
        sources = {"ops/cpu/a.h": HEADER + '#include "ops/format/b.h"\n',
                   "ops/format/b.h": HEADER}
        for rows, message in (
                ("| `format` | |\n| `cpu` | |\n", ""),
                ("| `format`, `cpu` | |\n", ""),
                ("| `cpu` | of `format` |\n| `format` | |\n",
                 "lists ops/cpu above ops/format, which ops/cpu/a.h includes"),
                ("| `format` | |\n", "lists no ops/cpu")):
            table = "\n| | | `ops/` | |\n|---|---|---|---|\n" + rows.replace("| `", "| | | `")
            for text in (table, table.replace("| | | ", "| ")):
                result = self.run_tidy({**sources, "docs/architecture.md": text})
                self.assertEqual(result.returncode, 1 if message else 0, result.stdout)
                self.assertIn(message, result.stdout)

    def test_what_is_named_is_included(self):
        self.expect_violation("ops/cpu/a.h", "std::vector<int> a;",
                              "ops/cpu/a.h:6: names std::vector without <vector>")
        self.expect_violation("daemon/loop/a.h", "uv_loop_t* a;", "names uv_loop_t without <uv.h>")
        declared = HEADER + "#include <vector>\nclass Thing {\n    std::vector<int> a;\n};\n"
        for text, message in (
                ("Thing* a;\n", "ops/cpu/b.h:6: names Thing without ops/cpu/a.h"),
                ("class Thing;\nThing* a;\n", ""),
                ("// Thing\nint a;\n", ""),
                ('#include "ops/cpu/a.h"\nstd::vector<Thing> a;\n', ""),
                ('#include "ops/cpu/c.h"\nThing* a;\n', "")):
            result = self.run_tidy({"ops/cpu/a.h": declared, "ops/cpu/b.h": HEADER + text,
                                    "ops/cpu/c.h": HEADER + '#include "ops/cpu/a.h"\n'})
            self.assertEqual(result.returncode, 1 if message else 0, result.stdout)
            self.assertIn(message, result.stdout)
        # A name of two things tells nothing.
        result = self.run_tidy({"ops/cpu/a.h": declared, "ops/cpu/b.h": HEADER + "Thing* a;\n",
                                "ops/format/c.h": HEADER + "struct Thing {};\n"})
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_tests_lie_where_their_headers_do(self):
        include = '#include "daemon/a/b/x.h"\n'
        headers = {"daemon/a/b/x.h": HEADER, "ops/reference/y.h": HEADER}
        for test, text, message in (
                ("tests/daemon/a/x_test.cc", "",
                 "tests/daemon/a/x_test.cc: the test of daemon/a/b/x.h belongs into "
                 "tests/daemon/a/b/"),
                ("tests/model/x_test.cc", include, "belongs into tests/daemon/a/b/"),
                ("tests/daemon/a/b/x_test.cc", include, ""),
                ("tests/model/x_test.cc", "", ""),
                ("tests/integration/x_test.cc", "", ""),
                ("tests/ops/cpu/y_test.cc", "", "")):
            result = self.run_tidy({**headers, test: text})
            if message:
                self.assertIn(message, result.stdout)
            else:
                self.assertNotIn("belongs into", result.stdout)
        # Of two headers, either, unless the test includes one.
        headers["daemon/c/x.h"] = HEADER
        result = self.run_tidy({**headers, "tests/daemon/x_test.cc": ""})
        self.assertNotIn("belongs into", result.stdout)
        result = self.run_tidy({**headers, "tests/daemon/c/x_test.cc": include})
        self.assertIn("belongs into tests/daemon/a/b/", result.stdout)

    def test_banned_words(self):
        self.expect_violation("ops/a.h", "throw 1;", "'throw'")
        self.expect_violation("tools/a.h", 'fmt::print("a");', "it throws where nothing")
        self.expect_violation("daemon/a.h", "flag.load();", "spell out the order")
        self.expect_violation("daemon/a.h", "flag.notify_all();", "never std::atomic::wait")
        self.expect_violation("schedule/a.h", "std::atomic_thread_fence(x);", "on the operation")
        self.expect_violation("ops/a.h", "// " + "TO" + "DO later", "doubts are issues")

    def test_memory_order_needs_a_partner(self):
        load = "x.load(std::memory_order_acquire);"
        self.expect_violation("daemon/a.h", load, "partner")
        self.expect_violation("daemon/a.h", "// The newest value.\n" + load, "partner")
        result = self.run_tidy({"daemon/loop/a.h": HEADER + "#include <atomic>\n"
                                "// Pairs with store().\n" + load + "\n"})
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_shape(self):
        self.expect_violation("ops/a.h", "// " + "x" * 100, "columns")
        self.expect_violation("ops/a.h", "int a; ", "trailing space")
        self.expect_violation("ops/a.h", "\n" * 600, "is it one noun?")
        self.expect_violation("docs/a.md", "x" * 101, "columns")
        self.assertIn("no SPDX line", self.run_tidy({"ops/a.h": "#pragma once\n"}).stdout)

    def test_long_functions(self):
        body = "    x();\n" * 69
        self.expect_violation("ops/cpu/a.h", f"int f(int a,\n      int b) {{\n{body}}}",
                              "a function of 72 lines")
        self.expect_violation("ops/cpu/a.h", f"struct A {{\n  void f() const {{\n{body}  }}\n}};",
                              "a function of 71 lines")
        result = self.run_tidy({"ops/cpu/a.h": HEADER + f"int f() {{\n{body[9:]}}}\n"
                                f"int g() {{\n{body[9:]}}}\n"})
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_comments_name_what_exists(self):
        self.expect_violation("ops/a.h", "// See ops/b.h.", "ops/b.h, which does not exist")
        self.expect_violation("ops/a.h", "// See b.cc.", "b.cc, which does not exist")
        self.expect_violation("ops/a.h", "// Unlike GoneClass.", "GoneClass, which does not exist")
        self.expect_violation("docs/a.md", "See `ops/b.h`.", "ops/b.h does not exist")
        result = self.run_tidy({
            "ops/cpu/a.h": HEADER + "// See RealClass in b.h and ops/cpu/b.h.\n",
            "ops/cpu/b.h": HEADER + "class RealClass;\n"})
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_headers_say_what_they_are(self):
        message = "ops/cpu/a.h:3: no comment behind #pragma once"
        start = LICENCE + "#pragma once\n"
        for text, is_refused in (("#include <vector>\n\n// A list.\nint a;\n", True),
                                 ("\nint a;  // A number.\n", True),
                                 ("", True),
                                 ("\n// A: a number.\n\n#include <vector>\n", False),
                                 ("/* For C. */\n", False)):
            result = self.run_tidy({"ops/cpu/a.h": start + text})
            self.assertEqual(result.returncode, 1 if is_refused else 0, result.stdout)
            (self.assertIn if is_refused else self.assertNotIn)(message, result.stdout)
        self.assertEqual(self.run_tidy({"ops/cpu/a.h": HEADER}).returncode, 0)

    def test_long_sources_give_reasons(self):
        self.expect_violation("ops/cpu/a.cc", "int a;\n" * 100, "and no comment")
        self.expect_violation("ops/cpu/a.cc", "int a;\n" * 100 + "}  // namespace afd",
                              "and no comment")
        with_reason = LICENCE + "int a;\n" * 100 + "// Why a stays.\nint b;\n"
        result = self.run_tidy({"ops/cpu/a.cc": with_reason})
        self.assertNotIn("and no comment", result.stdout)

    def test_programs_may_be_executed(self):
        result = self.run_tidy({"scripts/a": "#!/bin/sh\n"})
        self.assertIn("scripts/a:1: begins with #! and may not be executed", result.stdout)

    def test_format(self):
        # A program that says what clang-format says: newcomers need not have that one.
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "format"
            flag = f"--clang-format={program}"
            for script, message in (
                    ("echo 'ops/a.h:3:9: error: code should be clang-formatted' >&2; exit 1",
                     "ops/a.h:3: not as"),
                    ("echo 'no .clang-format' >&2; exit 1", "format: no .clang-format")):
                program.write_text(f"#!/bin/sh\n{script}\n")
                program.chmod(0o755)
                result = self.run_tidy({"ops/a.h": HEADER}, flag)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(message, result.stdout)
            program.write_text("#!/bin/sh\nexit 0\n")
            self.assertEqual(self.run_tidy({"ops/cpu/a.h": HEADER}, flag).returncode, 0)

    def test_dead_sources(self):
        self.expect_violation("ops/a.cc", "", "named by no CMakeLists.txt")


if __name__ == "__main__":
    unittest.main()
