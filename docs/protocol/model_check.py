#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the models of this folder with SPIN (Debian: spin), as they are and without each rule.

    docs/protocol/model_check.py [--long] [--memory MIB] [MODEL...]

As it is, a model must be searched to the end without an error; without a rule there must be one.
A search that met a bound, such as --memory, before its end has shown nothing.
As many are searched at once as there are processors: about a minute on two, and 1 GiB; --long also
searches flags.pml with two rounds of two sessions: four minutes and 5 GiB more. Exit code 1 if
anything is otherwise. network.pml has a test of its own, tests/protocol/network_model_test.py.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
# Model: the bounds with which all of it is searched, and the rules, left out with the first bounds.
MODELS = {
    "flags": (["SESSIONS=1 CRASHES=2 ROUNDS=2", "SESSIONS=2 CRASHES=1 ROUNDS=1"],
              ["NO_R1", "NO_R2", "NO_ORDER", "NO_KEEP", "NO_LOG", "NO_R4", "NO_ALL", "NO_R5",
               "NO_R6", "NO_R8", "NO_R10"]),
    "failover": (["CRASHES=2 ROUNDS=2"], ["NO_R8", "NO_GRANT", "NO_VOID", "NO_KEEP", "NO_CLOSE",
                                         "NO_R10"]),
    "control": (["CRASHES=2 ROUNDS=2 SILENCES=3"],
                ["NO_ORDER", "NO_ANY_STATE", "NO_DEADLINE", "NO_ROUND", "NO_SESSION", "NO_LATER",
                 "NO_MADE_UP"]),
    "poison": (["CRASHES=1 ROUNDS=3"], ["NO_LOG", "NO_ALONE", "NO_FIRST"]),
    "resize": (["CRASHES=2", "CRASHES=2 STOP_FIRST"],
               ["NO_GONE", "NO_TAKEN", "NO_KILL", "NO_HAND_OVER", "NO_UNDO", "STOP_FIRST NO_BACK",
                "NO_REPLAY"]),
    "rounds": (["SESSION_LIVES=2", "SESSION_LIVES=1 RANK_LIVES=2 CALLS=3",
                "SESSION_LIVES=1 BREAKS=3 CALLS=3"],
               ["NO_REFUSAL", "NO_LET_GO", "NO_CLOSE", "NO_SILENCE", "NO_NUMBER", "NO_ANSWERED",
                "NO_WAIT"]),
}
LONG = {"flags": ["SESSIONS=2 CRASHES=1 ROUNDS=2"]}


def search(model, definitions, memory_mib):
    """Whether all was searched or an error found, errors, states, and what SPIN says was wrong."""
    with tempfile.TemporaryDirectory() as folder:
        run = lambda *command: subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True).stdout
        names = [f"-D{each}" for each in definitions.split()]
        run("spin", "-a", *names, str(HERE / f"{model}.pml"))
        run("gcc", "-O1", "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={memory_mib}",
            "-o", "pan", "pan.c")
        text = run("./pan", "-m1000000")
    errors = int(re.search(r"errors: (\d+)", text)[1])
    states = int(float(re.search(r"(\S+) states, stored", text)[1]))
    # At a bound pan ends with exit code 0 and no errors. After an error it has not searched the rest.
    is_whole = not re.search("Search not completed|search depth too small|out of memory", text)
    found = re.search(r"pan:1: (.*) \(at depth", text)
    return is_whole or errors > 0, errors, states, found[1] if found else ""


def main():
    parser = argparse.ArgumentParser(description="Checks the models of docs/protocol with SPIN.")
    parser.add_argument("--long", action="store_true", help="four minutes and 5 GiB more")
    parser.add_argument("--memory", type=int, default=8000, metavar="MIB",
                        help="of each search, at most (default 8000)")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    options = parser.parse_args()
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"there is no model {min(unknown)}; there are {', '.join(MODELS)}")
    runs = []
    for model in options.models or MODELS:
        bounds, rules = MODELS[model]
        runs += [(model, each, "") for each in bounds]
        runs += [(model, each, "") for each in LONG.get(model, []) if options.long]
        runs += [(model, bounds[0], rule) for rule in rules]
    is_good = True
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(
            lambda run: search(run[0], f"{run[1]} {run[2]}", options.memory), runs)
        for (model, bound, rule), (is_over, errors, states, said) in zip(runs, found):
            is_right = is_over and (errors > 0) == bool(rule)
            is_good &= is_right
            what = f"without {rule.split('NO_')[1]}" if rule else f"with {bound}"
            result = "the search was not completed" if not is_over else said or "no error"
            text = f"{'' if is_right else 'NOT AS EXPECTED '}{what}: {result}"
            print(f"{model} {text} ({states} states)", flush=True)
    return 0 if is_good else 1


sys.exit(main())
