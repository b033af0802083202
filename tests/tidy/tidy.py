#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the tree against the house rules that a machine can check.

    tidy.py SOURCE_DIR [--compile-commands FILE]

Goal: include directions, banned words, line lengths and file sizes hold for every committed file,
and every translation unit of ours is compiled with -ffp-contract=off and without fast-math.
Method: reads the files that git lists and the compile commands of the build. Oracle: the tables
below, which restate docs/architecture.md. Prints one line per violation; exit code 1 if any.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

# Who may include whom (docs/architecture.md). proto's hand-written headers are open to all.
ALLOWED_INCLUDES = {
    "proto": {"proto"},
    "schedule": {"schedule", "proto"},
    "ops": {"ops", "schedule", "proto"},
    "threads": {"threads", "ops", "proto"},
    "model": {"model", "ops", "proto"},
    "clients": {"clients", "proto"},
    "tools": {"tools", "threads", "model", "ops", "schedule", "proto"},
    "daemon": {"daemon", "threads", "model", "ops", "schedule", "proto"},
    "bench": {"bench", "daemon", "threads", "model", "ops", "schedule", "clients", "proto"},
    "tests": {"tests", "bench", "daemon", "threads", "model", "ops", "schedule", "clients", "tools", "proto"},
}
# Of schedule/, ops may see the context, the layout of windows and the accessors of shared words,
# nothing that moves bytes.
OPS_MAY_SEE = {"schedule/flag.h", "schedule/geometry.h", "schedule/schedule_context.h",
               "schedule/window_layout.h"}
# Only those who speak a socket protocol see generated messages.
MESSAGE_READERS = {"clients", "daemon", "tests"}
# The settings of the sampler are one message from the client to it.
SETTINGS = {("model", "proto/sampling.pb.h")}

BANNED = [
    (r"\bthrow\b", "no exceptions of our own: return a Result", None),
    (r"\busing namespace\b", "name what you use", None),
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

COLUMNS_MAX = 100
FILE_LINES_MAX = 600
KERNEL_LINES_MAX = 800
ORDER_COMMENT_LINES = 3


def tracked_files(root: Path) -> list[Path]:
    names = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True).stdout.splitlines()
    return [Path(name) for name in names if (root / name).is_file()]


def is_cpp(path: Path) -> bool:
    return path.suffix in {".h", ".cc"}


def without_comment_and_strings(line: str) -> str:
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    return line.split("//")[0]


def check_includes(path: Path, lines: list[str]) -> list[str]:
    folder = path.parts[0]
    problems = []
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        included = match.group(1)
        target = included.split("/")[0]
        where = f"{path}:{number}"
        if ".." in included:
            problems.append(f'{where}: include "{included}" from the root of the repository')
        elif "/" not in included:
            problems.append(f'{where}: include "{included}" with its folder')
        elif target not in ALLOWED_INCLUDES.get(folder, set()):
            problems.append(f"{where}: {folder}/ may not include {included}")
        elif folder == "ops" and target == "schedule" and included not in OPS_MAY_SEE:
            problems.append(f"{where}: ops/ may see only {sorted(OPS_MAY_SEE)} of schedule/")
        elif (included.endswith(".pb.h") and folder not in MESSAGE_READERS
              and (folder, included) not in SETTINGS):
            problems.append(f"{where}: {folder}/ may not read protocol messages")
    return problems


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


def check_orders(path: Path, lines: list[str]) -> list[str]:
    """Every memory order outside tests has a comment near it that names its partner."""
    if path.parts[0] in {"tests", "bench"}:
        return []
    problems = []
    for number, line in enumerate(lines):
        if "memory_order_" not in without_comment_and_strings(line):
            continue
        near = lines[max(0, number - ORDER_COMMENT_LINES): number + 1]
        if not any("//" in text for text in near):
            problems.append(f"{path}:{number + 1}: memory order without a comment on its partner")
    return problems


def check_shape(path: Path, lines: list[str]) -> list[str]:
    problems = []
    if lines and "SPDX-License-Identifier: Apache-2.0" not in "\n".join(lines[:3]):
        problems.append(f"{path}:1: no SPDX line")
    if path.suffix == ".h" and not any(line == "#pragma once" for line in lines[:4]):
        problems.append(f"{path}:2: no #pragma once")
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            problems.append(f"{path}:{number}: {len(line)} columns; at most {COLUMNS_MAX}")
        if line != line.rstrip():
            problems.append(f"{path}:{number}: trailing space")
    limit = KERNEL_LINES_MAX if path.parts[:2] == ("ops", "cpu") else FILE_LINES_MAX
    if len(lines) > limit:
        problems.append(f"{path}: {len(lines)} lines; at most {limit}: is it one noun?")
    return problems


def check_sources_are_built(root: Path, files: list[Path]) -> list[str]:
    """A source that no CMakeLists.txt names is dead."""
    lists = "".join((root / p).read_text() for p in files if p.name == "CMakeLists.txt")
    return [f"{p}: named by no CMakeLists.txt" for p in files
            if p.suffix == ".cc" and not re.search(rf"\b{re.escape(p.name)}\b", lists)]


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source_dir", type=Path)
    parser.add_argument("--compile-commands", type=Path)
    args = parser.parse_args()
    root = args.source_dir.resolve()

    files = tracked_files(root)
    problems = check_sources_are_built(root, files)
    for path in filter(is_cpp, files):
        lines = (root / path).read_text().split("\n")
        for check in (check_includes, check_words, check_orders, check_shape):
            problems += check(path, lines)
    if args.compile_commands:
        problems += check_compile_flags(root, args.compile_commands)

    print("\n".join(problems) or f"tidy: {len(files)} files, no violation")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
