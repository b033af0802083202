"""Runs cases of operators through afd-op: what the operators' case files share.

A case NAME is NAME.in.safetensors, with the operator's name and its attributes as JSON in the
metadata ("operator", "attributes"), and NAME.expected.safetensors, both in one folder.
"""
import pathlib
import subprocess
from typing import Callable

import safetensors_np as st


def check(afd_op: str, folder: pathlib.Path, names: list[str],
          compare: Callable[[pathlib.Path, pathlib.Path], list[str]], is_reference: bool) -> int:
    """Runs every case; `compare(actual, expected)` says what differs. Returns how many failed."""
    flags = ["--reference"] if is_reference else []
    num_failed = 0
    for name in names:
        source, out = folder / f"{name}.in.safetensors", folder / f"{name}.out.safetensors"
        meta = st.read_metadata(source)
        run = subprocess.run([afd_op, "run", meta["operator"], "--in", source, "--attrs",
                              meta["attributes"], "--out", out, *flags],
                             capture_output=True, text=True, check=False)
        problems = [run.stderr.strip()] if run.returncode != 0 else compare(
            out, folder / f"{name}.expected.safetensors")
        for problem in problems:
            print(f"{name}: {problem}")
        num_failed += bool(problems)
    print(f"{len(names) - num_failed} of {len(names)} cases agree")
    return num_failed
