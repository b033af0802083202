#!/usr/bin/env python3
"""Prompts over a link of a given rate, beside what is said on paper.

    bench_rates.py [--bin build/release/bin] [--model demo_model] [--gbits 1,10,25,100]
                   [--micro-batches 1,2] [--tokens 512] [--rounds 3]

An attention worker here and an FFN worker on a host "b", which is a network namespace behind a pair
of devices (veth); a token bucket (tc, tbf) at either end lets no more through than the rate.
Printed is the median time until the first token behind a prompt. On paper (tools/host_model.py),
with Tc = the bytes that went over the link in one direction / rate:

    one micro-batch   time without a limit + 2 Tc
    M of them         the time without a limit, Tc, or (time of one without a limit + 2 Tc) / M,
                      whichever is longest

What the two devices carry without a limit is no link of 100 Gbit/s: such a row says that the limit
does no harm. As root.
"""
import argparse
import pathlib
import statistics

from hosts import Hosts, numbers
from wire import Veth

ROOT = pathlib.Path(__file__).resolve().parents[2]


def measured(options: argparse.Namespace, gbit: int, micro_batches: int) -> tuple[float, float]:
    """Seconds until the first token, and the bytes of a prompt over the link, both ways."""
    seconds, token_bytes = [], 0.0
    for _ in range(options.rounds):
        with Veth(gbit) as wire, Hosts(options.bin, options.model, wire, [
                "--attention-threads", "1", "--ffn-threads", "1", "--dispatch", "window",
                "--prefix-cache", "false", "--micro-batches", str(micro_batches)]) as hosts:
            seconds += hosts.prompts_s(options.tokens)
            token_bytes = hosts.bytes_per_token()
    return statistics.median(seconds), token_bytes * options.tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "demo_model")
    parser.add_argument("--gbits", type=numbers, default=[1, 10, 25, 100], metavar="GBIT,...")
    parser.add_argument("--micro-batches", type=numbers, default=[1, 2], metavar="M,...")
    parser.add_argument("--tokens", type=int, default=512, help="of a prompt (512)")
    parser.add_argument("--rounds", type=int, default=3, help="instances for each row (3)")
    options = parser.parse_args()
    without = {m: measured(options, 0, m)[0] for m in sorted({1, *options.micro_batches})}
    for m, seconds in without.items():
        print(f"{m} micro-batches, no limit: {1e3 * seconds:.0f} ms", flush=True)
    print("Gbit/s  M       ms  on paper  ratio  MiB there and back")
    for m in options.micro_batches:
        for gbit in options.gbits:
            seconds, num_bytes = measured(options, gbit, m)
            way = num_bytes / 2 / (gbit * 1e9 / 8)
            together = without[1] + 2 * way
            paper = together if m == 1 else max(without[m], way, together / m)
            print(f"{gbit:6} {m:2} {1e3 * seconds:8.0f} {1e3 * paper:9.0f} {seconds / paper:6.2f}"
                  f" {num_bytes / 2**20:19.1f}", flush=True)


if __name__ == "__main__":
    main()
