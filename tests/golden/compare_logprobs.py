#!/usr/bin/env python3
"""Compares the log probabilities of served completions with the NumPy decoder.

    compare_logprobs.py --model DIR --jsonl FILE [--median-bound 0.02] [--tail-bound 0.6]
                        [--noise-ratio 1.25] [--margin 0.005] [--rounding bf16|none]
                        [--limit N]

Each line of FILE is one request as the system served it (serve.py writes such files):

    {"numeric_class": "avx2", "prompt_ids": [..], "output_ids": [..],
     "prompt_logprobs": [null, float, ..], "output_logprobs": [float, ..]}

prompt_ids holds every token that the model saw, a bos included. The log probability of a token is
that given all tokens before it; null (the first of a prompt, or any that was not asked for) is
skipped, and prompt_logprobs may be absent.

The decoder rounds to bf16 where the system does. What is left is the order of the system's fp32
sums: now and then it turns a rounding, or a near tie of the router, the other way, and the layers
above amplify that. How much this alone explains is measured, not guessed: the decoder runs once
more with every sum perturbed by 2^-26 (2^-25.5 in classes that add products one by one) of the sum
of its terms' magnitudes, and its differences to
itself are the noise. A rounding at another place, or a mistake, shows as a larger median.

--median-bound  limit of the median of |difference|, in nats
--tail-bound    limit of its 99th percentile
--noise-ratio   limit of its median over the noise's median
--rounding      of the decoder: bf16 for what was served with residual = bf16; with none, and bounds
                of inf, the figures are those of how exact the system is
--margin        router margins below this are near ties. They are counted and shown; a value behind
                one counts like every other.

Exits 0 within all limits, 1 beyond one, 2 on unusable input.
"""
import argparse
import json
import pathlib
import sys

import numpy as np

import grouped_np

# What a sum of fp32 products loses, of the sum of its terms' magnitudes: vdpbf16ps adds two products
# at a time, the other classes one, so their chains have twice the roundings and sqrt(2) of the noise.
# Class amx has fewer roundings than either, in chains of 16 products.
NOISE = {"avx512-bf16": 2.0 ** -26, "amx": 2.0 ** -26}
NOISE_OF_SINGLE_PRODUCTS = 2.0 ** -25.5


class Perturbed:
    """Mixed into a decoder: sums as inexact as fp32 makes them, in an order of no consequence."""

    random = np.random.default_rng(1)
    noise = NOISE["avx512-bf16"]

    def sums(self, x: np.ndarray, name: str) -> np.ndarray:
        # Not asked of int8 weights: sums of whole numbers are exact.
        return self.perturbed(x, self.weights[name + ".weight"].T)

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        # Beside bf16 linears these sums add little; where those are int8 they are the noise.
        return self.perturbed(a, b) if self.int8 else super().product(a, b)

    def perturbed(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        magnitude = np.abs(a) @ np.abs(b)
        return a @ b + self.noise * magnitude * self.random.standard_normal(magnitude.shape)


def split(record: dict) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Ids of a record, the rows whose next token has a log probability, and these."""
    prompt, output = record["prompt_ids"], record["output_ids"]
    ids = prompt + output
    given = list(record.get("prompt_logprobs") or [None] * len(prompt))
    given += record["output_logprobs"]
    if len(given) != len(ids):
        raise ValueError(f"{len(given)} log probabilities for {len(ids)} tokens")
    rows = np.array([i - 1 for i in range(1, len(ids)) if given[i] is not None], dtype=np.int64)
    return ids, rows, np.array([given[row + 1] for row in rows], dtype=np.float64)


class Comparison:
    """Differences of all records, in nats, and what may explain them."""

    def __init__(self, model: pathlib.Path, margin: float, rounding: str) -> None:
        decoder = grouped_np.decoder_class(model)
        self.exact = decoder(model, rounding)
        self.perturbed = type("PerturbedDecoder", (Perturbed, decoder), {})(model, rounding)
        self.margin = margin
        self.differences, self.noise, self.behind_tie = [], [], []
        self.near_ties = self.decisions = self.greedy_same = self.outputs = 0

    def add(self, record: dict) -> None:
        ids, rows, given = split(record)
        self.perturbed.noise = NOISE.get(record.get("numeric_class"), NOISE_OF_SINGLE_PRODUCTS)
        next_ids = np.array(ids)[rows + 1]
        exact, perturbed = self.exact.forward(ids[:-1]), self.perturbed.forward(ids[:-1])
        expected = exact.log_probs()
        is_near = exact.margins < self.margin
        self.differences.append(np.abs(given - expected[rows, next_ids]))
        self.noise.append(np.abs(perturbed.log_probs() - expected)[rows, next_ids])
        self.behind_tie.append(np.maximum.accumulate(is_near.any(0))[rows])
        self.near_ties += int(is_near.sum())
        self.decisions += is_near.size
        greedy = expected[len(record["prompt_ids"]) - 1:].argmax(-1)
        self.greedy_same += int((greedy == np.array(record["output_ids"])).sum())
        self.outputs += len(record["output_ids"])

    def report(self) -> tuple[float, float, float]:
        """Prints the figures; returns median, 99th percentile and the ratio of medians."""
        values, noise, behind = map(
            np.concatenate, (self.differences, self.noise, self.behind_tie))
        for name, part in (("served", values), ("noise", noise)):
            print(f"{name:7} {part.size} log probabilities, |difference| in nats: median "
                  f"{np.median(part):.5f} p90 {np.quantile(part, .9):.4f} "
                  f"p99 {np.quantile(part, .99):.4f} max {part.max():.3f}")
        clean = values[~behind]
        print(f"near ties: {self.near_ties} of {self.decisions} routing decisions (margin < "
              f"{self.margin}); {clean.size} values lie behind none, max {clean.max(initial=0):.4f}")
        print(f"outputs that are the decoder's first choice: {self.greedy_same} of {self.outputs}")
        ratio = np.median(values) / np.median(noise)
        return float(np.median(values)), float(np.quantile(values, .99)), float(ratio)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--jsonl", type=pathlib.Path, required=True)
    parser.add_argument("--median-bound", type=float, default=0.02)
    parser.add_argument("--tail-bound", type=float, default=0.6)
    parser.add_argument("--noise-ratio", type=float, default=1.25)
    parser.add_argument("--margin", type=float, default=0.005)
    parser.add_argument("--rounding", choices=("bf16", "wide", "none"), default="wide")
    parser.add_argument("--limit", type=int, help="compare only the first N requests")
    arguments = parser.parse_args()

    comparison = Comparison(arguments.model, arguments.margin, arguments.rounding)
    lines = [line for line in arguments.jsonl.read_text("utf-8").splitlines() if line.strip()]
    for number, line in enumerate(lines[:arguments.limit], 1):
        try:
            comparison.add(json.loads(line))
        except (KeyError, ValueError) as error:
            print(f"line {number}: {error!r}")
            return 2
    if not comparison.outputs:
        print("no requests to compare")
        return 2
    limits = (arguments.median_bound, arguments.tail_bound, arguments.noise_ratio)
    figures = comparison.report()
    for name, figure, limit in zip(("median", "p99", "median / noise"), figures, limits):
        print(f"{name}: {figure:.4f}, at most {limit}{'' if figure <= limit else '  EXCEEDED'}")
    return 0 if all(figure <= limit for figure, limit in zip(figures, limits)) else 1


if __name__ == "__main__":
    sys.exit(main())
