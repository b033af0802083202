# SPDX-License-Identifier: Apache-2.0
"""What a file looks like: licence line, columns, length of files and functions."""

import re
from pathlib import Path

COLUMNS_MAX = 100
FILE_LINES_MAX = 600
KERNEL_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

# Starts of blocks that are not functions.
OTHER_BLOCKS = re.compile(
    r"^\s*(?:\}\s*)?(?:if|else|for|while|switch|do|case|default|namespace|enum|struct|class|union|"
    r"extern|return|try|catch|template\s*<[^()]*>\s*(?:struct|class))\b")


def check_shape(path: Path, lines: list[str]) -> list[str]:
    problems = []
    if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(lines[:3]):
        problems.append(f"{path}:1: no SPDX line")
    if path.suffix == ".h" and not any(line == "#pragma once" for line in lines[:4]):
        problems.append(f"{path}:2: no #pragma once")
    limit = KERNEL_LINES_MAX if path.parts[:2] == ("ops", "cpu") else FILE_LINES_MAX
    if len(lines) > limit:
        problems.append(f"{path}: {len(lines)} lines; at most {limit}: is it one noun?")
    return problems + check_columns(path, lines) + check_functions(path, lines)


def check_columns(path: Path, lines: list[str]) -> list[str]:
    """Sources and documents fit a screen."""
    problems = []
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            problems.append(f"{path}:{number}: {len(line)} columns; at most {COLUMNS_MAX}")
        if line != line.rstrip():
            problems.append(f"{path}:{number}: trailing space")
    return problems


def check_functions(path: Path, lines: list[str]) -> list[str]:
    """Every function fits a screen. The formatter's indentation tells where a block ends.

    Not of tests: a table of cases is as long as its cases.
    """
    if path.parts[0] == "tests":
        return []
    problems = []
    start = 0  # Where the statement that may turn out to be a signature began.
    number = 0
    while number < len(lines):
        line = lines[number]
        if re.search(r"[;}{:]\s*(?://.*)?$", line) or not line.strip() or line.startswith("#"):
            end = block_end(lines, start, number)
            if end is not None:
                length = end - start + 1
                if length > FUNCTION_LINES_MAX:
                    problems.append(f"{path}:{start + 1}: a function of {length} lines; "
                                    f"at most {FUNCTION_LINES_MAX}")
                number = end
            start = number + 1
        number += 1
    return problems


def block_end(lines: list[str], start: int, opening: int) -> int | None:
    """Index of the line that ends the function lines[start .. opening] opens, if it opens one."""
    signature = " ".join(lines[start:opening + 1])
    if not re.search(r"\{\s*(?://.*)?$", lines[opening]) or "(" not in signature:
        return None
    if OTHER_BLOCKS.match(signature) or re.search(r"=\s*\{$|=\s*\w*\{$", signature):
        return None
    first = next((line for line in lines[start:opening + 1]
                  if line.strip() and not line.lstrip().startswith("//")), lines[opening])
    closing = first[:len(first) - len(first.lstrip())] + "}"
    for number in range(opening + 1, len(lines)):
        if lines[number].startswith(closing):
            return number
    return None
