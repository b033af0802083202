#!/usr/bin/env python3
"""What a link between hosts costs, measured over emulated links, beside what is said on paper.

    bench_link.py [--bin build/release/bin] [--model demo_model] [--delays 0,500,2000]
                  [--mbits 0,100,10] [--micro-batches 1,2] [--requests 6] [--rounds 1] [--hold]

An attention worker here and an FFN worker on a host "b", which is a network namespace behind
afd-link: one request at a time in one micro-batch, or one in each of M. Printed is the median time
between two tokens of a request. On paper (tools/host_model.py) each layer with experts takes two
ways more than without the link, and micro-batches wait for their ways at the same time:

    on paper = time without conditions, one micro-batch + 2 x layers x (delay + bytes / rate)
               or the time without conditions, if that is longer (several micro-batches)

The bytes on paper are those of rows. Behind it the same with the bytes that went over the link, as
the status counts them, there and back one behind the other. "Without conditions" is the same link
with no delay and no limit, in the same rounds. As root.

afd-link adds some 0.1 ms itself. For less, --hold takes a pair of devices (veth) whose ends keep
each packet with rows back as long as --delays says, on the core that sends it (hold.bpf.c): a delay
for one message at a time, so for one micro-batch.
"""
import argparse
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import host_model  # noqa: E402
from hosts import Hosts, numbers  # noqa: E402
from wire import Link, Veth, Wire  # noqa: E402

TOKENS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "demo_model")
    parser.add_argument("--delays", type=numbers, default=[0, 500, 2000], metavar="US,...")
    parser.add_argument("--mbits", type=numbers, default=[0, 100, 10], metavar="MBIT,...")
    parser.add_argument("--micro-batches", type=numbers, default=[1, 2], metavar="M,...")
    parser.add_argument("--requests", type=int, default=6, help="for each row (6)")
    parser.add_argument("--rounds", type=int, default=1, help="instances for each row, in turns (1)")
    parser.add_argument("--hold", action="store_true", help="delays of 0 to 100 us, by the kernel")
    options = parser.parse_args()
    model = host_model.Model(json.loads((options.model / "config.json").read_text()))
    if options.hold:
        options.mbits, options.micro_batches = [0], [1]

    def link_of(delay_us: int, mbit: int) -> Link:
        if options.hold:
            return Veth(hold_us=delay_us)
        return Wire(options.bin / "afd-link", "--delay-us", str(delay_us), "--mbit", str(mbit))

    def measured(delay_us: int, mbit: int, micro_batches: int) -> tuple[float, float]:
        with link_of(delay_us, mbit) as wire, Hosts(options.bin, options.model, wire, [
                "--micro-batches", str(micro_batches), "--micro-batch-size", "1"]) as hosts:
            level = hosts.load(micro_batches, options.requests * micro_batches, TOKENS)
            return level["itl_us"]["p50"] / 1000, hosts.bytes_per_token()

    conditions = [(delay_us, mbit) for delay_us in options.delays for mbit in options.mbits
                  if delay_us or mbit]
    rows = [(m, *condition) for m in sorted({1, *options.micro_batches})
            for condition in [(0, 0), *(conditions if m in options.micro_batches else [])]]
    found = {row: [] for row in rows}
    for _ in range(options.rounds):
        for m, delay_us, mbit in rows:
            found[m, delay_us, mbit].append(measured(delay_us, mbit, m))

    def median_ms(*row: int) -> float:
        return statistics.median(token_ms for token_ms, _ in found[row])

    print("delay us  Mbit/s  M  ms a token  on paper  ratio  KiB a token  with these  ratio")
    for m, delay_us, mbit in rows:
        token_ms = median_ms(m, delay_us, mbit)
        if not delay_us and not mbit:
            print(f"{'none':>8} {'all':>7} {m:2} {token_ms:11.2f}", flush=True)
            continue
        link = host_model.Link(mbit * 1e6 / 8 if mbit else float("inf"), delay_us / 1e6)
        way = host_model.way_seconds(model, link, host_model.Load(batch=1), 1, 1)
        without = median_ms(m, 0, 0)
        alone = median_ms(1, 0, 0)
        paper = max(without, alone + 2e3 * model.num_layers * way)
        token_bytes = statistics.median(carried for _, carried in found[m, delay_us, mbit])
        ways_ms = 2e3 * model.num_layers * link.latency + 1e3 * token_bytes / link.bandwidth
        with_bytes = max(without, alone + ways_ms)
        print(f"{delay_us:8} {mbit or 'all':>7} {m:2} {token_ms:11.2f} {paper:9.2f}"
              f" {token_ms / paper:6.2f} {token_bytes / 1024:12.1f} {with_bytes:11.2f}"
              f" {token_ms / with_bytes:6.2f}", flush=True)


if __name__ == "__main__":
    main()
