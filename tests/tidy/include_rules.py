# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: between folders by a table, and no cycle at any level. And the namespaces
of the folders, by another."""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

# Folder: what its files may include besides their own folder. A name covers the folders below it.
# docs/architecture.md draws this table.
ALLOWED_INCLUDES = {
    "proto": "",
    "schedule/layout": "proto",
    "schedule/context": "proto schedule/layout",
    "schedule/wait": "proto",
    "schedule/transport": "proto schedule/layout schedule/context schedule/wait",
    "schedule/shared_memory": "proto schedule/layout schedule/context schedule/wait "
                              "schedule/transport",
    "schedule/near": "proto schedule/wait schedule/shared_memory",
    "schedule/ucx": "proto schedule/layout schedule/context schedule/wait schedule/transport"
                    " schedule/shared_memory schedule/near",
    "schedule/dispatch": "proto schedule/layout schedule/context schedule/transport",
    "schedule/two_phase": "proto schedule/layout schedule/context schedule/wait "
                          "schedule/transport schedule/dispatch",
    "schedule/plugin": "proto schedule/dispatch",
    "ops/tensor": "proto",
    "ops/format": "proto ops/tensor",
    "ops/cpu": "proto ops/tensor ops/format",
    "ops/linear": "proto ops/tensor ops/format ops/cpu",
    "ops/attention": "proto ops/tensor ops/format ops/cpu ops/linear",
    "ops/experts": "proto ops/tensor ops/format ops/cpu ops/linear",
    "ops/record": "proto schedule ops/tensor",
    "ops/two_phase": "proto ops/tensor ops/format ops/linear ops/experts ops/record",
    "ops/operators": "proto schedule ops/tensor ops/format ops/cpu ops/linear ops/attention "
                     "ops/experts ops/record",
    "ops/fused_moe": "proto schedule ops/tensor ops/format ops/linear ops/experts",
    "ops/fused_moe/parts": "proto ops/tensor ops/format ops/linear ops/experts ops/two_phase "
                           "ops/operators ops/reference ops/fused_moe",
    "ops/fused_moe/plan": "proto schedule ops/tensor ops/format ops/experts ops/reference "
                          "ops/fused_moe",
    "ops/reference": "proto schedule ops/tensor ops/format ops/attention ops/experts "
                     "ops/two_phase ops/operators",
    "threads": "proto ops/tensor",
    "calls": "proto schedule ops threads",
    "model/unicode": "proto",
    "model/json": "proto model/unicode",
    "model/safetensors": "proto ops model/json",
    "model/foreign": "proto ops model/safetensors",
    "model/checkpoint": "proto ops model/json model/safetensors model/foreign",
    "model/tokenizer": "proto model/json model/unicode",
    "model/chat": "proto model/chat/message model/chat/call model/chat/template",
    "model/chat/message": "proto model/json model/tokenizer",
    "model/chat/call": "proto model/json model/chat/message",
    "model/chat/template": "proto model/json model/tokenizer model/unicode model/chat/message "
                           "model/chat/call",
    "model/weight_cache": "proto model/safetensors",
    "model/attention": "proto ops model/checkpoint",
    "model/mla": "proto ops model/attention model/checkpoint model/json",
    "model/gqa": "proto ops model/attention model/checkpoint model/json",
    "model/family": "proto ops model/attention model/checkpoint model/foreign model/gqa model/json "
                    "model/mla",
    "model/decoder": "proto ops model/attention model/checkpoint model/family model/weight_cache",
    "model/reference": "proto ops model",
    "model/grammar": "proto model/json model/unicode model/grammar/schema",
    "model/grammar/schema": "proto model/json model/unicode",
    "model/sampling": "proto ops",
    "daemon/program": "proto",
    "daemon/loop": "proto schedule/wait daemon/program",
    "daemon/metrics": "proto schedule",
    "daemon/exposition": "proto daemon/loop daemon/metrics",
    "daemon/config": "proto schedule ops model",
    "daemon/placement": "proto schedule daemon/program daemon/config",
    "daemon/options": "proto schedule ops model daemon/program daemon/config daemon/placement",
    "daemon/control": "proto schedule model/grammar model/sampling daemon/program daemon/loop "
                      "daemon/config",
    "daemon/worker": "proto schedule ops model threads daemon/program daemon/loop daemon/metrics "
                     "daemon/config daemon/placement daemon/control",
    "daemon/lanes": "proto schedule ops model daemon/metrics daemon/config daemon/control "
                    "daemon/worker",
    "daemon/attention": "proto schedule ops model daemon/program daemon/metrics daemon/control "
                        "daemon/worker daemon/lanes",
    "daemon/ffn": "proto schedule ops model daemon/program daemon/metrics daemon/config "
                  "daemon/control daemon/worker",
    "daemon/supervisor": "proto schedule model/unicode daemon/program daemon/loop daemon/config "
                         "daemon/control",
    "daemon/tcp": "proto daemon/loop daemon/config",
    "daemon/slurm": "proto daemon/config daemon/tcp",
    "daemon/cluster": "proto schedule daemon/program daemon/loop daemon/metrics daemon/config "
                      "daemon/tcp daemon/control",
    "daemon/client_socket": "proto daemon/loop daemon/gateway/session",
    "daemon/handover": "proto daemon/loop daemon/control daemon/gateway",
    "daemon/http": "proto model daemon/program daemon/loop daemon/tcp daemon/metrics daemon/config "
                   "daemon/gateway/session daemon/gateway/request daemon/http/message "
                   "daemon/http/call daemon/http/answer",
    "daemon/http/message": "proto model",
    "daemon/http/call": "proto model daemon/http/message",
    "daemon/http/answer": "proto model daemon/http/message daemon/http/call",
    "daemon/gateway": "proto daemon/program daemon/loop daemon/metrics daemon/config "
                      "daemon/supervisor daemon/gateway/session daemon/gateway/request "
                      "daemon/gateway/flight",
    "daemon/gateway/session": "proto daemon/loop",
    "daemon/gateway/request": "proto model daemon/loop daemon/gateway/session",
    "daemon/gateway/flight": "proto schedule model daemon/program daemon/loop daemon/metrics "
                             "daemon/config daemon/supervisor daemon/gateway/session "
                             "daemon/gateway/request",
    "daemon/instance": "proto schedule ops model daemon",
    "daemon/joined_host": "proto schedule daemon",
    "daemon/doctor": "proto schedule ops model daemon",
    "daemon/afdd": "proto schedule model daemon",
    "clients": "proto",
    "python": "calls",
    "tools": "proto schedule ops threads model calls",
    "bench": "proto schedule ops threads model calls daemon clients bench",
    "tests": "proto schedule ops threads model daemon clients tools calls bench tests",
}
# Of schedule/, ops may see the words that processes share, nothing that moves bytes.
OPS_MAY_SEE = {"schedule/context/schedule_context.h", "schedule/layout/window_layout.h",
               "schedule/layout/geometry.h", "schedule/layout/row_dtype.h",
               "schedule/layout/two_phase_control.h", "schedule/wait/flag.h"}
# Only those who speak a socket protocol see generated messages.
MESSAGE_READERS = {"clients", "daemon", "tests"}
# The settings of the sampler are one message from the client to it.
SETTINGS = {("model", "proto/sampling.pb.h")}
# Top folder: its namespace, which may have others within.
NAMESPACES = {
    "proto": "afd",
    "schedule": "afd::schedule",
    "ops": "afd::ops",
    "threads": "afd::threads",
    "calls": "afd::calls",
    "model": "afd::model",
    "daemon": "afd::daemon",
    "clients": "afd::client",
    "python": "afd::python",
    "tools": "afd::tools",
    "bench": "afd::bench",
}
# What tests share; a test itself is in the namespace of what it tests. (Within afd, a namespace
# afd::testing would hide that of GoogleTest.)
TEST_NAMESPACES = ["afd::test", "afd::fuzz"]
FORWARD_DECLARATION = re.compile(
    r"(template <[^>]*>)? *((class|struct|enum class) [\w: ]+;)? *(//.*)?")


def includes_of(lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match:
            yield number, match.group(1)


def rule_of(folder: str) -> str | None:
    """The table's entry for a folder: its own, or that of the nearest folder above it."""
    while folder:
        if folder in ALLOWED_INCLUDES:
            return folder
        folder = os.path.dirname(folder)
    return None


def is_allowed(folder: str, target: str) -> bool:
    rule = rule_of(folder)
    if rule is None:
        return False
    own = target == folder or rule_of(target) == rule
    return own or any(target == name or target.startswith(name + "/")
                      for name in ALLOWED_INCLUDES[rule].split())


def check_includes(path: Path, lines: list[str]) -> list[str]:
    folder, top = str(path.parent), path.parts[0]
    problems = []
    for number, included in includes_of(lines):
        target = os.path.dirname(included)
        where = f"{path}:{number}"
        if ".." in included:
            problems.append(f'{where}: include "{included}" from the root of the repository')
        elif not target:
            problems.append(f'{where}: include "{included}" with its folder')
        elif rule_of(folder) is None:
            problems.append(f"{where}: {folder}/ is in no row of ALLOWED_INCLUDES")
        elif not is_allowed(folder, target):
            problems.append(f"{where}: {folder}/ may not include {included}")
        elif top == "ops" and target.startswith("schedule/") and included not in OPS_MAY_SEE:
            problems.append(f"{where}: ops/ may see only {sorted(OPS_MAY_SEE)} of schedule/")
        elif (included.endswith(".pb.h") and top not in MESSAGE_READERS
              and (top, included) not in SETTINGS):
            problems.append(f"{where}: {top}/ may not read protocol messages")
    return problems


def namespaces_of(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The namespaces afd... that a file opens and fills, which forward declarations do not."""
    for number, line in enumerate(lines, 1):
        match = re.match(r"namespace (afd[\w:]*) \{$", line)
        if match:
            body = itertools.takewhile(lambda each: not each.startswith("}"), lines[number:])
            if not all(map(FORWARD_DECLARATION.fullmatch, body)):
                yield number, match.group(1)


def check_namespaces(path: Path, lines: list[str]) -> list[str]:
    top = path.parts[0]
    allowed = [NAMESPACES[top]] if top in NAMESPACES else []
    home = "".join(allowed)
    if top == "tests":
        allowed = [*TEST_NAMESPACES, *NAMESPACES.values()]
        home = f"that of what it tests, or {TEST_NAMESPACES[0]}"
    # Within afd itself are those of other folders.
    return [f"{path}:{number}: namespace {name}; {top}/ is in {home}"
            for number, name in namespaces_of(lines)
            if allowed and name not in allowed
            and not any(name.startswith(each + "::") for each in allowed if each != "afd")]


def listed_subfolders(document: list[str]) -> dict[str, list[str]]:
    """Of the tables with folders in their heads (| `ops/` | |): the subfolders, as they stand."""
    listed: dict[str, list[str]] = {}
    heads: list[str] = []
    is_in_table = False
    for line in document:
        cells = line.strip()[1:-1].split("|") if line.startswith("|") else []
        if not is_in_table:
            heads = ["".join(re.findall(r"^ *`(\w+)/` *$", cell)) for cell in cells]
        for head, cell in zip(heads, cells):
            if head and is_in_table:
                listed.setdefault(head, []).extend(re.findall(r"`(\w+)`", cell))
        is_in_table = bool(cells)
    return listed


def check_order(sources: dict[Path, list[str]], document: list[str]) -> list[str]:
    """What docs/architecture.md says of its tables: each subfolder includes those above it."""
    listed = listed_subfolders(document)
    problems = {}
    for path, lines in sources.items():
        top = path.parts[0]
        if len(path.parts) < 3 or top not in listed:
            continue
        order, own = listed[top], path.parts[1]
        if own not in order:
            problems[f"docs/architecture.md: lists no {top}/{own}"] = None
            continue
        before = order[:order.index(own) + 1]
        for _, included in includes_of(lines):
            theirs = Path(included).parts
            if len(theirs) > 2 and theirs[0] == top and theirs[1] not in before:
                problems[f"docs/architecture.md: lists {top}/{own} above {top}/{theirs[1]}, "
                         f"which {path} includes"] = None
    return list(problems)


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []
    counter = itertools.count()

    def visit(node: str) -> None:
        index[node] = low[node] = next(counter)
        stack.append(node)
        for following in graph.get(node, ()):
            if following not in index:
                visit(following)
                low[node] = min(low[node], low[following])
            elif following in stack:
                low[node] = min(low[node], index[following])
        if low[node] == index[node]:
            component = [stack.pop()]
            while component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def levels_of(path: str) -> dict[str, str]:
    """What a file is part of, by the name of the level."""
    parts = path.split("/")
    return {
        "files": path,
        "pairs of header and source": os.path.splitext(path)[0],
        "folders": os.path.dirname(path),
        "top-level folders": parts[0],
    }


def check_cycles(sources: dict[Path, list[str]]) -> list[str]:
    """No cycle of includes among files, pairs (x.h with x.cc), folders and top-level folders."""
    graphs: dict[str, dict[str, set[str]]] = {}
    for path, lines in sources.items():
        if path.parts[0] == "tests":
            continue
        for _, included in includes_of(lines):
            mine, theirs = levels_of(str(path)), levels_of(included)
            for level, node in mine.items():
                if node != theirs[level]:
                    graphs.setdefault(level, {}).setdefault(node, set()).add(theirs[level])
    return [f"cycle of includes among {level}: {' <-> '.join(component)}"
            for level, graph in graphs.items() for component in cycles(graph)]
