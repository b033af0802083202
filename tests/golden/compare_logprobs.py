#!/usr/bin/env python3
"""Compares the log probabilities of a served completion with the NumPy decoder.

    compare_logprobs.py --model DIR --jsonl FILE [--bound 0.02] [--rounding bf16]
                        [--margin 0.005] [--max-over 0] [--limit N]

Each line of FILE is one request as the system served it:

    {"prompt_ids": [..], "output_ids": [..],
     "prompt_logprobs": [null, float, ..], "output_logprobs": [float, ..]}

prompt_ids holds every token that the model saw, a bos included. The log probability of a token is
that given all tokens before it; null (the first of a prompt, or any that was not asked for) is
skipped, and prompt_logprobs may be absent.

--bound     limit of |difference| in nats
--margin    a token is a near tie if, in some MoE layer, the router's margin is below this at any
            of the positions it depends on; the printed counts show both kinds
--max-over  how many log probabilities may exceed the bound, counting near ties and others alike

Prints one line per request and a summary; exits 0 if at most --max-over values exceed the bound,
1 if more, 2 on unusable input.
"""
import argparse
import dataclasses
import json
import pathlib
import sys

import numpy as np

import deepseek_np


@dataclasses.dataclass
class Comparison:
    """Differences of one request, and which of them lie after a near tie of the router."""
    differences: np.ndarray
    after_near_tie: np.ndarray
    near_ties: int
    greedy_same: int
    outputs: int


def compare(model: deepseek_np.DeepSeek, record: dict, margin: float) -> Comparison:
    """Runs the sequence once and compares every log probability that the record holds."""
    prompt, output = record["prompt_ids"], record["output_ids"]
    ids = prompt + output
    given = list(record.get("prompt_logprobs") or [None] * len(prompt))
    given += record["output_logprobs"]
    if len(given) != len(ids):
        raise ValueError(f"{len(given)} log probabilities for {len(ids)} tokens")
    result = model.forward(ids[:-1])
    log_probs = result.log_probs()
    is_near = (result.margins < margin).any(0) if len(result.margins) else np.zeros(len(ids) - 1)
    tainted = np.maximum.accumulate(is_near)
    places = [i for i in range(1, len(ids)) if given[i] is not None]
    rows = np.array([i - 1 for i in places], dtype=np.int64)
    expected = log_probs[rows, [ids[i] for i in places]]
    actual = np.array([given[i] for i in places], dtype=np.float64)
    greedy = log_probs[len(prompt) - 1:].argmax(-1)
    return Comparison(np.abs(actual - expected), tainted[rows].astype(bool),
                      int((result.margins < margin).sum()),
                      int((greedy == np.array(output)).sum()), len(output))


def summary(comparisons: list[Comparison], bound: float, margin: float) -> int:
    """Prints the totals and returns how many values exceed the bound."""
    differences = np.concatenate([c.differences for c in comparisons])
    tainted = np.concatenate([c.after_near_tie for c in comparisons])
    over = ~(differences <= bound)
    clean = differences[~tainted]
    print(f"requests {len(comparisons)} log probabilities {differences.size} "
          f"max difference {differences.max(initial=0):.4f} mean {differences.mean():.5f} "
          f"(none behind a near tie: {clean.size}, max {clean.max(initial=0):.4f})")
    print(f"over the bound of {bound}: {over.sum()}, of these behind a near tie "
          f"{(over & tainted).sum()} (margin < {margin}); near ties in all "
          f"{sum(c.near_ties for c in comparisons)}; outputs equal to the reference's most likely "
          f"token {sum(c.greedy_same for c in comparisons)} of "
          f"{sum(c.outputs for c in comparisons)}")
    return int(over.sum())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--jsonl", type=pathlib.Path, required=True)
    parser.add_argument("--bound", type=float, default=0.02)
    parser.add_argument("--rounding", choices=("none", "bf16"), default="bf16")
    parser.add_argument("--margin", type=float, default=0.005)
    parser.add_argument("--max-over", type=int, default=0)
    parser.add_argument("--limit", type=int, help="compare only the first N requests")
    arguments = parser.parse_args()

    model = deepseek_np.DeepSeek(arguments.model, arguments.rounding)
    lines = [line for line in arguments.jsonl.read_text("utf-8").splitlines() if line.strip()]
    comparisons = []
    for number, line in enumerate(lines[:arguments.limit], 1):
        try:
            comparison = compare(model, json.loads(line), arguments.margin)
        except (KeyError, ValueError) as error:
            print(f"line {number}: {error!r}")
            return 2
        comparisons.append(comparison)
        print(f"line {number}: values {comparison.differences.size} "
              f"max difference {comparison.differences.max(initial=0):.4f} "
              f"near ties {comparison.near_ties}")
    if not comparisons:
        print("no requests to compare")
        return 2
    return 0 if summary(comparisons, arguments.bound, arguments.margin) <= arguments.max_over else 1


if __name__ == "__main__":
    sys.exit(main())
