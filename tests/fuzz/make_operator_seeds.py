#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the operators' fuzzers, corpus/operator_*/seed-*, as operator_input.h reads.

    make_operator_seeds.py AFD_OP     the program, whose records give names their order

Each is a case of tests/golden. Integers and heads of segments are its own; other values are of the
fuzzer's pattern. Findings are kept beside them as corpus/operator_*/finding-*.
"""
import itertools
import json
import pathlib
import struct
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))
import mla_cases  # noqa: E402  (found in tests/golden, like the next two)
import routing_cases  # noqa: E402
import two_phase_np  # noqa: E402

DTYPES = ["BF16", "F16", "F32", "I8", "I32", "I64", "U8", "BOOL"]
SEEDS_MAX = 4  # Of an operator.
OWN_MAX = 1024  # Of a window: descriptors and flags.


def attribute(spec, value):
    if value is None:
        made = b"\0"
    elif isinstance(value, bool):
        made = bytes([5, value])
    elif isinstance(value, int):
        made = struct.pack("<Bi", 1, value)
    elif isinstance(value, float):
        made = struct.pack("<Bf", 4, value)
    elif isinstance(value, list):
        made = struct.pack(f"<BB{len(value)}b", 6, len(value), *value)
    else:
        made = bytes([7, spec["values"].index(value)])
    return made.ljust(9, b"\0")


def own_bytes(name, kind, array):
    """What decides: ids, tables, contexts, the heads of windows, and what is small."""
    data = np.ascontiguousarray(array).tobytes()
    if name == "schedule_context" or kind in ("I32", "I64", "BOOL"):
        return data
    return data[:OWN_MAX] if kind == "U8" or len(data) <= 16 else b""


def seed(record, tensors, attributes):
    head, own = b"\0", b""
    for spec in record["attributes"]:
        head += attribute(spec, attributes.get(spec["name"]))
    for spec in record["tensors"]:
        name = spec["name"]
        if spec["role"].startswith("output"):
            continue
        if name not in tensors:
            head += bytes(14)
            continue
        kind, array = tensors[name]
        data = own_bytes(name, kind, array)
        shape = list(np.shape(array)) + [0] * (4 - np.ndim(array))
        head += struct.pack("<4B5H", 1, DTYPES.index(kind), np.ndim(array), 6, *shape, len(data))
        own += data
    return head + own


def cases():
    """(operator, tensors, attributes), those that differ most first."""
    for name, tensors, attributes, _ in routing_cases.all_cases():
        yield name.split(".")[0], tensors, attributes
    for name, tensors, attributes in two_phase_np.all_cases():
        yield name.split(".")[0], tensors, attributes
    for make in mla_cases.all_cases().values():
        name, attributes, tensors = make()
        yield name, tensors, attributes


def main() -> int:
    by_operator = {}
    for name, tensors, attributes in cases():
        kinds = tuple((key, kind) for key, (kind, _) in sorted(tensors.items()))
        modes = tuple(sorted((key, str(value)) for key, value in attributes.items()))
        by_operator.setdefault(name, {}).setdefault((kinds, modes), (tensors, attributes))
    for name, found in by_operator.items():
        done = subprocess.run([sys.argv[1], "describe", name, "--json"], check=True,
                              capture_output=True, text=True)
        record = json.loads(done.stdout)
        folder = HERE / "corpus" / f"operator_{name}"
        folder.mkdir(parents=True, exist_ok=True)
        step = max(1, len(found) // SEEDS_MAX)
        chosen = itertools.islice(found.values(), 0, None, step)
        for number, (tensors, attributes) in zip(range(SEEDS_MAX), chosen):
            (folder / f"seed-{number}").write_bytes(seed(record, tensors, attributes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
