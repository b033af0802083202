#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the tree against the house rules that a machine can check.

    tidy.py SOURCE_DIR [--compile-commands FILE] [--clang-format PROGRAM]

Goal: include directions, freedom from cycles, namespaces, includes of what is named, places of
tests, banned words, sizes, true comments and documents that fit a screen hold for every committed
file, which is formatted as .clang-format says, and every translation unit of ours is compiled with
-ffp-contract=off and without fast-math.
Method: reads the files that git lists and the compile commands of the build. Oracle: the tables in
include_rules.py, name_rules.py, place_rules.py, shape_rules.py, comment_rules.py and below. One
line per violation; exit code 1 if any.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from comment_rules import (Names, check_comment_names, check_document_names, check_opening,
                           check_orders, check_reasons)
from include_rules import check_cycles, check_includes, check_namespaces, check_order
from name_rules import Headers, check_names_are_included
from place_rules import check_test_places
from shape_rules import check_columns, check_shape

BANNED = [
    # pybind11 is told of errors by exceptions.
    (r"\bthrow\b", "no exceptions of our own: return a Result", {"python"}),
    (r"\busing namespace\b", "name what you use", None),
    (r"\bfmt::print\(", "it throws where nothing can be written: std::fputs(fmt::format())",
     {"bench"}),
    (r"\bvolatile\b", "use atomics", {"bench"}),
    (r"\bsleep_for\b", "wait on something", {"tests", "bench", "clients"}),
    (r"\batomic_thread_fence\b", "put the order on the operation", None),
    (r"\.load\(\)", "spell out the order", None),
    # Condition variables are called wake_.
    (r"(?<!wake_)\.notify_(one|all)\(\)", "never std::atomic::wait", None),
    (r"\b(TODO|FIXME|XXX|HACK)\b", "doubts are issues", None),
    (r"\bGTEST_SKIP\b|\bDISABLED_", "a test runs or does not exist", None),
    (r"EXPECT_TRUE\(true\)|ASSERT_TRUE\(true\)", "a test must be able to fail", None),
]

# The order of subfolders.
ARCHITECTURE = Path("docs/architecture.md")


def tracked_files(root: Path) -> list[Path]:
    names = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True).stdout.splitlines()
    return [Path(name) for name in names if (root / name).is_file()]


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")


def is_cpp(path: Path) -> bool:
    return path.suffix in {".h", ".cc"}


def without_comment_and_strings(line: str) -> str:
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    return line.split("//")[0]


def check_words(path: Path, lines: list[str]) -> list[str]:
    folder = path.parts[0]
    problems = []
    for number, line in enumerate(lines, 1):
        code = without_comment_and_strings(line)
        for pattern, advice, exempt in BANNED:
            text = line if "TODO" in pattern else code
            if re.search(pattern, text) and folder not in (exempt or set()):
                problems.append(f"{path}:{number}: '{re.search(pattern, text).group(0)}': {advice}")
    return problems


def check_sources_are_built(root: Path, files: list[Path]) -> list[str]:
    """A source that no CMakeLists.txt names is dead."""
    lists = "".join((root / p).read_text() for p in files if p.name == "CMakeLists.txt")
    return [f"{p}: named by no CMakeLists.txt" for p in files
            if p.suffix == ".cc" and not re.search(rf"\b{re.escape(p.name)}\b", lists)]


def check_run_bits(root: Path, files: list[Path]) -> list[str]:
    """Documents call programs by their path alone."""
    problems = []
    for path in files:
        with (root / path).open("rb") as file:
            if file.read(2) == b"#!" and not (root / path).stat().st_mode & 0o100:
                problems.append(f"{path}:1: begins with #! and may not be executed (chmod +x)")
    return problems


def check_compile_flags(root: Path, commands_file: Path) -> list[str]:
    problems = []
    for entry in json.loads(commands_file.read_text()):
        command = entry.get("command") or " ".join(entry["arguments"])
        source = Path(entry["file"])
        name = source.relative_to(root) if source.is_relative_to(root) else source
        if "-ffp-contract=off" not in command:
            problems.append(f"{name}: compiled without -ffp-contract=off")
        for flag in ("-ffast-math", "-Ofast", "-funsafe-math", "-fassociative-math"):
            if flag in command:
                problems.append(f"{name}: compiled with {flag}")
    return problems


def check_format(root: Path, sources: list[Path], program: str) -> list[str]:
    result = subprocess.run([program, "--dry-run", "--Werror", *map(str, sources)],
                            cwd=root, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return []
    places = re.findall(r"^(\S+:\d+):\d+: error: ", result.stderr, re.MULTILINE)
    return [f"{place}: not as {program} writes it ({program} -i)"
            for place in dict.fromkeys(places)] or [f"{program}: {result.stderr.strip()}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source_dir", type=Path)
    parser.add_argument("--compile-commands", type=Path)
    parser.add_argument("--clang-format", metavar="PROGRAM")
    args = parser.parse_args()
    root = args.source_dir.resolve()

    files = tracked_files(root)
    sources = {path: lines_of(root / path) for path in filter(is_cpp, files)}
    messages = [(root / path).read_text() for path in files if path.suffix == ".proto"]
    names = Names(files, sources, messages)
    headers = Headers(sources, messages)
    problems = (check_sources_are_built(root, files) + check_cycles(sources)
                + check_run_bits(root, files) + check_test_places(sources))
    if ARCHITECTURE in files:
        problems += check_order(sources, lines_of(root / ARCHITECTURE))
    for path, lines in sources.items():
        for check in (check_includes, check_namespaces, check_words, check_opening, check_orders,
                      check_reasons, check_shape):
            problems += check(path, lines)
        problems += check_comment_names(path, lines, names)
        problems += check_names_are_included(path, headers)
    for path in files:
        if path.suffix == ".md":
            lines = lines_of(root / path)
            problems += check_columns(path, lines) + check_document_names(path, lines, names)
    if args.compile_commands:
        problems += check_compile_flags(root, args.compile_commands)
    if args.clang_format:
        problems += check_format(root, list(sources), args.clang_format)

    print("\n".join(problems) or f"tidy: {len(files)} files, no violation")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
