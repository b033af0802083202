#!/usr/bin/env python3
"""Tokens a second of an instance over two hosts, beside the same on one: of streams, and of prompts.

    tests/golden/make_checkpoint.py --variant medium --out DIR
    bench_hosts.py [--bin build/release/bin] [--model demo_model --model DIR] [--streams 1,8]
                   [--prompts 512] [--rounds 3]

An attention worker and an FFN worker, a thread each: on one host over shared memory, on one host
through memory and over UCX's TCP, and on two, the second of which is a network namespace behind a pair of devices (veth) that
is as fast as memory: what several hosts cost before there is a network. Each row is the median of
--rounds instances of each kind, started in turns. A prompt, of random tokens, is measured until its
first token comes, through windows and in two phases. As root.
"""
import argparse
import pathlib
import statistics
from collections.abc import Callable

from hosts import Hosts, numbers
from wire import Veth

ROOT = pathlib.Path(__file__).resolve().parents[2]
THREADS = ["--attention-threads", "1", "--ffn-threads", "1"]
KINDS = ("shared memory", "memory", "ucx", "two hosts")
OVER = {"shared memory": [],
        "memory": ["--transport", "ucx", "--ucx-devices", "lo"],
        "ucx": ["--transport", "ucx", "--ucx-devices", "lo", "--ucx-neighbours", "ucx"]}
DISPATCHES = ("window", "two_phase")


def with_hosts(options: argparse.Namespace, model: pathlib.Path, kind: str, flags: list[str],
               measure: Callable[[Hosts], float]) -> float:
    if kind == "two hosts":
        with Veth() as wire, Hosts(options.bin, model, wire, [*THREADS, *flags]) as hosts:
            return measure(hosts)
    with Hosts(options.bin, model, None, [*THREADS, *flags, *OVER[kind]]) as hosts:
        return measure(hosts)


def row(options: argparse.Namespace, model: pathlib.Path, name: str, flags: list[str],
        measure: Callable[[Hosts], float]) -> None:
    found = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind in KINDS:
            found[kind].append(with_hosts(options, model, kind, flags, measure))
    medians = [statistics.median(found[kind]) for kind in KINDS]
    print(f"{model.name:12} {name:22} " + " ".join(f"{each:14.1f}" for each in medians)
          + "  " + " ".join(f"{each / medians[0]:.2f}" for each in medians[1:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--model", type=pathlib.Path, action="append")
    parser.add_argument("--streams", type=numbers, default=[1, 8], metavar="N,...")
    parser.add_argument("--prompts", type=numbers, default=[512], metavar="TOKENS,...")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=4, help="for each stream (4)")
    parser.add_argument("--tokens", type=int, default=64, help="of each request (64)")
    options = parser.parse_args()
    print(f"{'model':12} {'':22} " + " ".join(f"{kind:>14}" for kind in KINDS) + "  ratios")
    for model in options.model or [ROOT / "demo_model"]:
        for streams in options.streams:
            row(options, model, f"streams {streams}", [], lambda hosts: hosts.load(
                streams, options.requests * streams, options.tokens)["output_tokens_per_s"])
        for tokens in options.prompts:
            for dispatch in DISPATCHES:
                row(options, model, f"prompt {tokens}, {dispatch}",
                    ["--dispatch", dispatch, "--prefix-cache", "false"],
                    lambda hosts: tokens / statistics.median(hosts.prompts_s(tokens)))


if __name__ == "__main__":
    main()
