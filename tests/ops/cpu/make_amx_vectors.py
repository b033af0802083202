#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Vectors for class amx, from a model of its own: rational numbers, rounded by hand.

    make_amx_vectors.py --out FILE | --check FILE

A line is one output: the bits of c (fp32), of the result (fp32), then of the pairs of a and b
(bf16), a0 b0 a1 b1 ..., all in hexadecimal. Values are drawn from what rounds: wide exponents, near
ties, cancellation, zeros of both signs, denormals, sums around the least normal value, overflow.
"""

import argparse
import pathlib
import random
import sys
from fractions import Fraction

STEP_PAIRS = 16
LEAST_NORMAL = Fraction(1, 1 << 126)


class Number:
    """A float: a rational value and a sign, which zeros need, too; None: infinite."""

    def __init__(self, value: Fraction | None, negative: bool) -> None:
        self.value, self.negative = value, negative


def decoded(bits: int) -> Number:
    """fp32 bits; denormals are zeros. REQUIRES: no NaN, not infinite."""
    negative, exponent, fraction = bits >> 31 == 1, bits >> 23 & 0xff, bits & 0x7fffff
    if exponent == 0:
        return Number(Fraction(0), negative)
    value = Fraction((1 << 23) + fraction) * Fraction(2) ** (exponent - 150)
    return Number(-value if negative else value, negative)


def encoded(number: Number) -> int:
    sign = number.negative << 31
    if number.value is None:
        return sign | 0x7f800000
    value = abs(number.value)
    if value == 0:
        return sign
    exponent = floor_log2(value)
    return sign | (exponent + 127) << 23 | int(value / Fraction(2) ** (exponent - 23)) - (1 << 23)


def floor_log2(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def rounded(value: Fraction, zero_is_negative: bool) -> Number:
    """To 24 bits, ties to even, the exponent unbounded below; then denormals to zero."""
    if value == 0:
        return Number(Fraction(0), zero_is_negative)
    negative, magnitude = value < 0, abs(value)
    unit = Fraction(2) ** (floor_log2(magnitude) - 23)
    magnitude = round(magnitude / unit) * unit  # Python rounds halves to even.
    if magnitude < LEAST_NORMAL:
        magnitude = Fraction(0)
    if magnitude >= Fraction(2) ** 128:
        return Number(None, negative)
    return Number(-magnitude if negative else magnitude, negative)


def added(a: Number, b: Number) -> Number:
    return rounded(a.value + b.value, a.negative and b.negative)


def fused(a: Number, b: Number, c: Number) -> Number:
    product_negative = a.negative != b.negative
    return rounded(a.value * b.value + c.value, product_negative and c.negative)


def product(c: int, pairs: list[tuple[int, int]]) -> int | None:
    """The bits of the sum of c and of the products; None where something became infinite."""
    total = decoded(c)
    for first in range(0, len(pairs) // 2, STEP_PAIRS):
        chains = [Number(Fraction(0), False), Number(Fraction(0), False)]
        for i in range(2 * first, min(2 * (first + STEP_PAIRS), len(pairs))):
            a, b = (decoded(bits << 16) for bits in pairs[i])
            chains[i % 2] = fused(a, b, chains[i % 2])
            if chains[i % 2].value is None:
                return None
        step = added(*chains)
        if step.value is None:
            return None
        total = added(total, step)
        if total.value is None:
            return None
    return encoded(total)


def draw(source: random.Random, low: int, high: int) -> int:
    """A bf16 with an exponent between these two, which are biased."""
    return source.getrandbits(1) << 15 | source.randint(low, high) << 7 | source.getrandbits(7)


# Exponents of a and of b: ordinary, wide, products around the least normal value, denormals among
# them.
RANGES = (((124, 130), (124, 130)), ((90, 160), (90, 160)), ((60, 68), (54, 62)),
          ((0, 3), (118, 127)))


def near_the_least_normal() -> list[str]:
    """2^-126 less a few quarters of 2^-150: where a result becomes a denormal by rounding."""
    lines = []
    for quarters in range(1, 17):
        # 2^-126 = 2^-60 · 2^-66, and quarters · 2^-152 = quarters · 2^-76 · 2^-76.
        small = encoded(Number(Fraction(quarters, 1 << 76), False)) >> 16
        pairs = [(0x2180, 0x1e80), (0, 0), (small | 0x8000, 0x1980), (0, 0)]
        lines.append(line(0, product(0, pairs), pairs))
    return lines


def line(c: int, result: int, pairs: list[tuple[int, int]]) -> str:
    return f"{c:08x} {result:08x} " + " ".join(f"{a:04x} {b:04x}" for a, b in pairs)


def vectors() -> list[str]:
    source = random.Random(17)
    lines = near_the_least_normal()
    for number in range(240):
        num_pairs = source.choice((1, 2, 3, 7, 15, 16, 17, 20, 31, 32, 33, 48))
        a_range, b_range = RANGES[number % len(RANGES)]
        pairs = [(draw(source, *a_range), draw(source, *b_range)) for _ in range(2 * num_pairs)]
        if number % 3 == 0:  # Cancels: the second half is the first one negated, a bit off.
            half = len(pairs) // 2
            pairs[half:2 * half] = [(a ^ 0x8000, b ^ source.getrandbits(1)) for a, b in pairs[:half]]
        if number % 5 == 0:
            pairs[source.randrange(len(pairs))] = (0x8000, draw(source, 120, 130))
        c = source.choice((0, 0x80000000, draw(source, *b_range) << 16 | source.getrandbits(16)))
        result = product(c, pairs)
        if result is None:
            continue
        lines.append(line(c, result, pairs))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path)
    arguments = parser.parse_args()
    text = "\n".join(vectors()) + "\n"
    if arguments.out is not None:
        arguments.out.write_text(text)
    if arguments.check is not None and arguments.check.read_text() != text:
        print(f"{arguments.check} is not what this program makes: run it with --out")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
