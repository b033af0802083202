#!/usr/bin/env python3
"""Compares logits with the NumPy decoder.

    compare_logits.py --model DIR --tokens ids.txt --logits logits.safetensors
                      [--rounding none|bf16] [--bound 1e-5] [--median-bound X]
                      [--margin 0.005]

--tokens   whitespace-separated token ids of one sequence, T of them
--logits   safetensors file with a tensor "logits", F32 [T, V]: row t follows token t
--bound    limit of max|difference| / max|logit| over all rows
--median-bound
           limit of the same figure for the median row; the default is --bound. With rounding
           "bf16" the two runs sum in different orders, a near tie now and then falls the other
           way and its row differs at will: there the median row shows agreement, so give --bound
           inf or a loose one and a tight --median-bound.
--margin   router margins below this count as near ties. A near tie is reported, never excused:
           rows after one are compared like all others.

With a tensor "routing", I32 [T, L, K], the experts of every MoE layer whose margin is no near tie
must be those of the decoder, too.

Prints the figures; exits 0 if both are within their bounds, 1 if not, 2 on unusable input.
"""
import argparse
import pathlib
import sys

import numpy as np

import deepseek_np
import grouped_np
import safetensors_np


def row_differences(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """max|actual - expected| of each row [T] / max|expected|; inf where it is not finite."""
    rows = np.abs(actual - expected).max(-1) / np.abs(expected).max()
    return np.where(np.isfinite(rows), rows, np.inf)


def routing_differences(routing: np.ndarray, model: deepseek_np.DeepSeek,
                        output: deepseek_np.Output, margin: float) -> int:
    """In how many rows that are no near tie another set of experts was chosen."""
    layers = [layer for layer in range(routing.shape[1]) if model.is_moe(layer)]
    have = np.sort(routing[:, layers].transpose(1, 0, 2), -1)
    differs = (have != np.sort(output.picks, -1)).any(-1)
    return int((differs & (output.margins >= margin)).sum())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--tokens", type=pathlib.Path, required=True)
    parser.add_argument("--logits", type=pathlib.Path, required=True)
    parser.add_argument("--rounding", choices=("none", "bf16"), default="none")
    parser.add_argument("--bound", type=float, default=1e-5)
    parser.add_argument("--median-bound", type=float)
    parser.add_argument("--margin", type=float, default=0.005)
    arguments = parser.parse_args()

    ids = [int(word) for word in arguments.tokens.read_text().split()]
    tensors = safetensors_np.read(arguments.logits)
    actual = tensors["logits"]
    model = grouped_np.open_decoder(arguments.model, arguments.rounding)
    output = model.forward(ids)
    if actual.shape != output.logits.shape:
        print(f"logits: shape {actual.shape}, must be {output.logits.shape}")
        return 2
    rows = row_differences(actual, output.logits)
    near = int((output.margins < arguments.margin).sum())
    print(f"tokens {len(ids)} rounding {arguments.rounding} "
          f"max|difference|/max|logit| {rows.max():.3e} in row {rows.argmax()}, "
          f"median row {np.median(rows):.3e}, max|logit| {np.abs(output.logits).max():.3f}; "
          f"near ties {near} of {output.margins.size} (margin < {arguments.margin}, "
          f"least {output.margins.min(initial=np.inf):.1e})")
    if "routing" in tensors:
        different = routing_differences(tensors["routing"], model, output, arguments.margin)
        print(f"routing: {different} of {output.margins.size} rows differ without a near tie")
        if different:
            return 1
    median_bound = arguments.bound if arguments.median_bound is None else arguments.median_bound
    return 0 if rows.max() <= arguments.bound and np.median(rows) <= median_bound else 1


if __name__ == "__main__":
    sys.exit(main())
