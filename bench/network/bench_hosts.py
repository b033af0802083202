#!/usr/bin/env python3
"""Tokens a second of an instance over two hosts, beside the same on one.

    tests/golden/make_checkpoint.py --variant medium --out DIR
    bench_hosts.py [--bin build/release/bin] [--model demo_model --model DIR] [--streams 1,8]
                   [--rounds 3]

An attention worker and an FFN worker, a thread each: on one host over shared memory, on one host
over UCX, and on two, the second of which is a network namespace behind a pair of devices (veth) that
is as fast as memory: what several hosts cost before there is a network. Each row is the median of
--rounds instances of each kind, started in turns. As root.
"""
import argparse
import pathlib
import statistics

from hosts import Hosts
from wire import Veth

ROOT = pathlib.Path(__file__).resolve().parents[2]
THREADS = ["--attention-threads", "1", "--ffn-threads", "1"]
KINDS = ("shared memory", "ucx", "two hosts")


def tokens_per_s(options: argparse.Namespace, model: pathlib.Path, kind: str,
                 streams: int) -> float:
    def measure(wire: Veth | None, flags: list[str]) -> float:
        with Hosts(options.bin, model, wire, [*THREADS, *flags]) as hosts:
            level = hosts.load(streams, options.requests * streams, options.tokens)
            return level["output_tokens_per_s"]
    if kind == "two hosts":
        with Veth() as wire:
            return measure(wire, [])
    return measure(None, ["--transport", "ucx", "--ucx-devices", "lo"] if kind == "ucx" else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--model", type=pathlib.Path, action="append")
    parser.add_argument("--streams", default="1,8", metavar="N,...")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=4, help="for each stream (4)")
    parser.add_argument("--tokens", type=int, default=64, help="of each request (64)")
    options = parser.parse_args()
    print(f"{'model':20} streams " + " ".join(f"{kind:>14}" for kind in KINDS) + "  ratios")
    for model in options.model or [ROOT / "demo_model"]:
        for streams in map(int, options.streams.split(",")):
            found = {kind: [] for kind in KINDS}
            for _ in range(options.rounds):
                for kind in KINDS:
                    found[kind].append(tokens_per_s(options, model, kind, streams))
            medians = [statistics.median(found[kind]) for kind in KINDS]
            print(f"{model.name:20} {streams:7} " + " ".join(f"{each:14.1f}" for each in medians)
                  + f"  {medians[1] / medians[0]:.2f} {medians[2] / medians[0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
