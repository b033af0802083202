#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the models of this folder with SPIN (Debian: spin), as they are and with each rule left out.

As it is, a model must be searched to the end without an error; without a rule there must be one.
Takes about two minutes and 1 GiB. Exit code 1 if anything is otherwise.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
MODELS = {
    "failover": ({"CRASHES": 2, "ROUNDS": 2},
                 ["NO_R8", "NO_GRANT", "NO_VOID", "NO_KEEP", "NO_R10"]),
    "control": ({"CRASHES": 2, "ROUNDS": 2, "SILENCES": 3},
                ["NO_ORDER", "NO_ANY_STATE", "NO_DEADLINE", "NO_ROUND", "NO_LATER", "NO_MADE_UP"]),
    "poison": ({"CRASHES": 1, "ROUNDS": 3}, ["NO_LOG", "NO_ALONE", "NO_FIRST"]),
}


def search(model, definitions):
    """Errors, states, and what SPIN says was wrong."""
    with tempfile.TemporaryDirectory() as folder:
        run = lambda *command: subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True).stdout
        run("spin", "-a", *definitions, str(HERE / f"{model}.pml"))
        run("gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=2000", "-o", "pan", "pan.c")
        text = run("./pan", "-m1000000")
    errors = int(re.search(r"errors: (\d+)", text)[1])
    states = int(re.search(r"(\d+) states, stored", text)[1])
    if "max search depth too small" in text or "out of memory" in text:
        errors = -1
    found = re.search(r"pan:1: (.*) \(at depth", text)
    return errors, states, found[1] if found else ""


def main():
    is_good = True
    for model, (bounds, rules) in MODELS.items():
        given = [f"-D{name}={value}" for name, value in bounds.items()]
        for rule in ["", *rules]:
            errors, states, found = search(model, given + ([f"-D{rule}"] if rule else []))
            is_right = errors == 0 if not rule else errors > 0
            is_good &= is_right
            what = f"without {rule[3:]}: {found}" if rule else "as it is: no error"
            print(f"{model} {what if is_right else 'NOT AS EXPECTED'} ({states} states)", flush=True)
    return 0 if is_good else 1


sys.exit(main())
