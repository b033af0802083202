#!/usr/bin/env python3
"""Compares logits with the NumPy decoder.

    compare_logits.py --model DIR --tokens ids.txt --logits logits.safetensors
                      [--rounding none|bf16] [--bound 1e-5] [--margin 0.005]

--tokens   whitespace-separated token ids of one sequence, T of them
--logits   safetensors file with a tensor "logits", F32 [T, V]: row t follows token t
--bound    limit of max|difference| / max|logit|
--margin   router margins below this count as near ties. A near tie is reported, never excused:
           rows after one are compared like all others.

Prints the figure; exits 0 if it is within the bound, 1 if not, 2 on unusable input.
"""
import argparse
import pathlib
import sys

import numpy as np

import deepseek_np
import safetensors_np


def relative_difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """max|actual - expected| / max|expected|; inf if anything is not finite."""
    if not np.isfinite(actual).all():
        return float("inf")
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--tokens", type=pathlib.Path, required=True)
    parser.add_argument("--logits", type=pathlib.Path, required=True)
    parser.add_argument("--rounding", choices=("none", "bf16"), default="none")
    parser.add_argument("--bound", type=float, default=1e-5)
    parser.add_argument("--margin", type=float, default=0.005)
    arguments = parser.parse_args()

    ids = [int(word) for word in arguments.tokens.read_text().split()]
    actual = safetensors_np.read(arguments.logits)["logits"]
    output = deepseek_np.DeepSeek(arguments.model, arguments.rounding).forward(ids)
    if actual.shape != output.logits.shape:
        print(f"logits: shape {actual.shape}, must be {output.logits.shape}")
        return 2
    difference = relative_difference(actual, output.logits)
    row = int(np.abs(actual - output.logits).max(-1).argmax())
    near = int((output.margins < arguments.margin).sum())
    print(f"tokens {len(ids)} rounding {arguments.rounding} "
          f"max|difference|/max|logit| {difference:.3e} bound {arguments.bound:.1e} "
          f"worst row {row} max|logit| {np.abs(output.logits).max():.3f} "
          f"least router margin {output.margins.min(initial=np.inf):.2e} "
          f"near ties {near} of {output.margins.size} (margin < {arguments.margin})")
    return 0 if difference <= arguments.bound else 1


if __name__ == "__main__":
    sys.exit(main())
