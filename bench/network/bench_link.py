#!/usr/bin/env python3
"""What a link between hosts costs, measured over emulated links, beside what is said on paper.

    bench_link.py [--bin build/release/bin] [--model demo_model] [--delays 0,500,2000]
                  [--mbits 0,100,10] [--micro-batches 1,2] [--requests 6]

An attention worker here and an FFN worker on a host "b", which is a network namespace behind
afd-link: one request at a time in one micro-batch, or one in each of M. Printed is the median time
between two tokens of a request. On paper (tools/host_model.py) each layer with experts takes two
ways more than without the link, and micro-batches wait for their ways at the same time:

    on paper = time without conditions, one micro-batch + 2 x layers x (delay + bytes / rate)
               or the time without conditions, if that is longer (several micro-batches)

The bytes on paper are those of rows. Behind it the same with the bytes that went over the link, as
the status counts them, there and back one behind the other. "Without conditions" is the same link
with no delay and no limit, measured first. As root.
"""
import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import host_model  # noqa: E402
from hosts import Hosts, numbers  # noqa: E402
from wire import Wire  # noqa: E402

TOKENS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "demo_model")
    parser.add_argument("--delays", type=numbers, default=[0, 500, 2000], metavar="US,...")
    parser.add_argument("--mbits", type=numbers, default=[0, 100, 10], metavar="MBIT,...")
    parser.add_argument("--micro-batches", type=numbers, default=[1, 2], metavar="M,...")
    parser.add_argument("--requests", type=int, default=6, help="for each row (6)")
    options = parser.parse_args()
    model = host_model.Model(json.loads((options.model / "config.json").read_text()))

    def measured(delay_us: int, mbit: int, micro_batches: int) -> tuple[float, float]:
        with Wire(options.bin / "afd-link", "--delay-us", str(delay_us), "--mbit", str(mbit)) \
                as wire, Hosts(options.bin, options.model, wire, [
                    "--micro-batches", str(micro_batches), "--micro-batch-size", "1"]) as hosts:
            level = hosts.load(micro_batches, options.requests * micro_batches, TOKENS)
            return level["itl_us"]["p50"] / 1000, hosts.bytes_per_token()

    without = {m: measured(0, 0, m)[0] for m in sorted({1, *options.micro_batches})}
    for m, token_ms in without.items():
        print(f"{m} micro-batches, no conditions: {token_ms:.2f} ms a token", flush=True)
    print("delay us  Mbit/s  M  ms a token  on paper  ratio  KiB a token  with these  ratio")
    for m in options.micro_batches:
        for delay_us in options.delays:
            for mbit in options.mbits:
                if not delay_us and not mbit:
                    continue
                link = host_model.Link(mbit * 1e6 / 8 if mbit else float("inf"), delay_us / 1e6)
                way = host_model.way_seconds(model, link, host_model.Load(batch=1), 1, 1)
                paper = max(without[m], without[1] + 2e3 * model.num_layers * way)
                token_ms, token_bytes = measured(delay_us, mbit, m)
                ways_ms = 2e3 * model.num_layers * link.latency + 1e3 * token_bytes / link.bandwidth
                found = max(without[m], without[1] + ways_ms)
                print(f"{delay_us:8} {mbit or 'all':>7} {m:2} {token_ms:11.2f} {paper:9.2f}"
                      f" {token_ms / paper:6.2f} {token_bytes / 1024:12.1f} {found:11.2f}"
                      f" {token_ms / found:6.2f}", flush=True)


if __name__ == "__main__":
    main()
