# SPDX-License-Identifier: Apache-2.0
"""What comments owe: what a header is, true names of files and classes, the partner of an order, a
reason."""

import re
from pathlib import Path

ORDER_COMMENT_LINES = 5
UNCOMMENTED_LINES_MAX = 100

# The comment at an atomic's order says with whom it pairs, or why it pairs with nobody.
PARTNER = re.compile(r"\bpairs? with\b|\bpartner|\brelaxed\b|\bordered by\b|\bunder the mutex\b",
                     re.IGNORECASE)
FILE_NAME = re.compile(r"(?<![\w./<>*-])((?:[\w-]+/)*[\w-]+\.(?:h|cc|py|md|proto|txt|toml))\b(?!\()")
CLASS_NAME = re.compile(r"(?<![\w.])([A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+)\b(?!\.\w)")

# Files that exist elsewhere: at a user's, in an installation. (Those of checkpoints end in json.)
FOREIGN_FILES = {"afd.toml", "share/afd/demo_model/prompts.txt", "XDG_CONFIG_HOME/afd/config.toml"}
# Names of systems, formats and papers, and words of other documents.
FOREIGN_NAMES = {
    "AddressSanitizer", "AttentionToFFN", "AttentionWorkerScheduler", "DeepSeek",
    "FfnWorkerScheduler", "GiB", "GigaChat", "GoogleTest", "HdrHistogram", "LeakSanitizer", "MiB",
    "MiniMax", "NumPy", "OneDNN", "OpenAI", "OpenCL", "OpenMP", "OpenMetrics", "PyTorch",
    "SmoothQuant", "SplitMix64", "SwiGLU", "TwoPhasePayload", "YaRN", "ThreadSanitizer", "TiB",
    "UndefinedBehaviorSanitizer",
}


def comment_of(line: str) -> str:
    """The // comment of a line, or nothing; strings with // in them are not comments."""
    bare = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    return bare.split("//", 1)[1] if "//" in bare else ""


def code_of(line: str) -> str:
    return re.sub(r"//.*", "", line)


class Names:
    """The names that exist in a tree: its files, and the words of its code."""

    def __init__(self, files: list[Path], sources: dict[Path, list[str]],
                 messages: list[str]) -> None:
        """`messages`: the texts of the .proto files, whose names are classes too."""
        self.paths = {str(path) for path in files}
        self.suffixes = {"/".join(path.parts[i:]) for path in files
                         for i in range(len(path.parts))}
        self.words = set(FOREIGN_NAMES)
        for text in messages:
            self.words.update(re.findall(r"\b(?:message|enum) (\w+)", text))
        for path, lines in sources.items():
            self.words.add(path.stem)
            for line in lines:
                self.words.update(re.findall(r"\b[A-Z]\w+", code_of(line)))

    def has_file(self, name: str) -> bool:
        stem, _, suffix = name.rpartition(".")
        generated = name.endswith(".pb.h") or name.endswith(".pb.cc")
        pattern = "_" in (stem[:1], stem[-1:]) or suffix == "json"
        return (name in FOREIGN_FILES or generated or pattern
                or (name in self.paths if "/" in name else name in self.suffixes))


def check_comment_names(path: Path, lines: list[str], names: Names) -> list[str]:
    problems = []
    for number, line in enumerate(lines, 1):
        comment = comment_of(line)
        for name in FILE_NAME.findall(comment):
            if not names.has_file(name):
                problems.append(f"{path}:{number}: the comment names {name}, which does not exist")
        for name in CLASS_NAME.findall(comment):
            if not {name, name.removesuffix("s")} & names.words:
                problems.append(f"{path}:{number}: the comment names {name}, which does not exist")
    return problems


def check_document_names(path: Path, lines: list[str], names: Names) -> list[str]:
    """Files that a document names in backticks or links exist.

    Not in docs/adding/, whose pages name the files that a reader is about to write.
    """
    problems = []
    if path.parts[:2] == ("docs", "adding"):
        return problems
    for number, line in enumerate(lines, 1):
        quoted = re.findall(r"`([^`\s]+)`", line) + re.findall(r"\]\(([^)#:\s]+)", line)
        for name in quoted:
            if not FILE_NAME.fullmatch(name):
                continue
            here = str((path.parent / name).as_posix())
            if not (names.has_file(name) or name in names.suffixes or here in names.paths):
                problems.append(f"{path}:{number}: {name} does not exist")
    return problems


def check_orders(path: Path, lines: list[str]) -> list[str]:
    """Every memory order outside tests has a comment near it that names its partner."""
    if path.parts[0] in {"tests", "bench"}:
        return []
    problems = []
    for number, line in enumerate(lines):
        if "memory_order_" not in re.sub(r'"[^"]*"', "", code_of(line)):
            continue
        near = lines[max(0, number - ORDER_COMMENT_LINES): number + 1]
        if not PARTNER.search(" ".join(comment_of(text) for text in near)):
            problems.append(f"{path}:{number + 1}: memory order without a comment on its partner")
    return problems


def check_opening(path: Path, lines: list[str]) -> list[str]:
    """A header says what it is before it says anything else."""
    if path.suffix != ".h" or "#pragma once" not in lines:
        return []
    start = lines.index("#pragma once") + 1
    first = next((line for line in lines[start:] if line.strip()), "")
    if first.startswith(("//", "/*")):
        return []
    return [f"{path}:{start + 1}: no comment behind #pragma once: what is this, for whom?"]


def check_reasons(path: Path, lines: list[str]) -> list[str]:
    """A long source without a single comment line keeps its reasons to itself.

    The licence is not a reason, nor is what stands behind code: `}  // namespace afd`.
    """
    if path.suffix != ".cc" or path.parts[0] in {"tests", "bench"}:
        return []
    is_reason = [line.lstrip().startswith("//") and "SPDX-License-Identifier" not in line
                 for line in lines]
    if len(lines) <= UNCOMMENTED_LINES_MAX or any(is_reason):
        return []
    return [f"{path}: {len(lines)} lines and no comment: what does a reader need to know why?"]
