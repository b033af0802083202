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

"Without conditions" is the same link with no delay and no limit, measured first. As root.
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import host_model  # noqa: E402
from wire import NEAR, Wire  # noqa: E402

PATIENCE_S = 60
PORT = 7499
TOKENS = 200


class Hosts:
    """An afdd here that leads, and one that has joined behind the wire, until the end of `with`."""

    def __init__(self, bin_dir: pathlib.Path, model: pathlib.Path, micro_batches: int,
                 wire: Wire) -> None:
        self.bin_dir, self.model, self.micro_batches = bin_dir, model, micro_batches
        self.wire = wire
        self.ends = contextlib.ExitStack()

    def __enter__(self) -> "Hosts":
        with contextlib.ExitStack() as ends:
            self.root = pathlib.Path(
                ends.enter_context(tempfile.TemporaryDirectory(prefix="afd-bench-")))
            certificates = self.root / "certificates"
            subprocess.run([self.bin_dir / "afdctl", "cluster", "init", certificates, "--host",
                            "b"], check=True, stdout=subprocess.DEVNULL)
            shared = ["--model", self.model, "--transport", "ucx", "--ucx-devices",
                      self.wire.device, "--cluster-dir", certificates]
            leader = self.start(ends, self.root / "leader", [], [
                *shared, "--ucx-host", NEAR, "--cluster-listen", f"{NEAR}:{PORT}",
                "--attention-workers", "1", "--ffn-workers", "1", "--ffn-hosts", "b",
                "--micro-batches", str(self.micro_batches), "--micro-batch-size", "1"])
            self.start(ends, self.root / "host", self.wire.far, [
                *shared, "--join", f"{NEAR}:{PORT}", "--host-name", "b"])
            self.wait_ready(leader)
            self.ends = ends.pop_all()
        return self

    def wait_ready(self, leader: subprocess.Popen) -> None:
        log = self.root / "leader" / "log"
        deadline = time.monotonic() + PATIENCE_S
        while "ready in " not in log.read_text():
            if time.monotonic() > deadline or leader.poll() is not None:
                sys.exit(f"bench_link: the instance does not start:\n{log.read_text()}")
            time.sleep(0.05)

    def start(self, ends: contextlib.ExitStack, directory: pathlib.Path, before: list[str],
              flags: list[object]) -> subprocess.Popen:
        directory.mkdir()
        with open(directory / "log", "w") as log:
            # Two hosts of one machine: each has a name for its segments.
            process = subprocess.Popen(
                [*before, self.bin_dir / "afdd", "--instance", f"bench_{directory.name}", *flags],
                env=self.environment(directory), stderr=log)
        ends.callback(process.wait, PATIENCE_S)
        ends.callback(process.terminate)
        return process

    def environment(self, directory: pathlib.Path) -> dict[str, str]:
        return {**os.environ, "XDG_RUNTIME_DIR": str(directory), "XDG_CACHE_HOME": str(directory)}

    def token_ms(self, requests: int) -> float:
        """Median time between two tokens of a request, with one for each micro-batch."""
        done = subprocess.run(
            [self.bin_dir / "afd-load", "--instance", "bench_leader", "--concurrency",
             str(self.micro_batches), "--requests", str(requests), "--max-tokens", str(TOKENS),
             "--ignore-eos", "--warmup", str(self.micro_batches), "--out",
             self.root / "result", "--json"],
            env=self.environment(self.root / "leader"), check=False, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"bench_link: afd-load failed: {done.stderr}")
        return json.loads(done.stdout)["levels"][0]["itl_us"]["p50"] / 1000

    def __exit__(self, *unused: object) -> None:
        self.ends.close()


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


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

    def measured(delay_us: int, mbit: int, micro_batches: int) -> float:
        with Wire(options.bin / "afd-link", "--delay-us", str(delay_us), "--mbit", str(mbit)) \
                as wire, Hosts(options.bin, options.model, micro_batches, wire) as hosts:
            return hosts.token_ms(options.requests * micro_batches)

    without = {m: measured(0, 0, m) for m in sorted({1, *options.micro_batches})}
    for m, token_ms in without.items():
        print(f"{m} micro-batches, no conditions: {token_ms:.2f} ms a token", flush=True)
    print("delay us  Mbit/s  M  ms a token  on paper  ratio")
    for m in options.micro_batches:
        for delay_us in options.delays:
            for mbit in options.mbits:
                if not delay_us and not mbit:
                    continue
                link = host_model.Link(mbit * 1e6 / 8 if mbit else float("inf"), delay_us / 1e6)
                way = host_model.way_seconds(model, link, host_model.Load(batch=1), 1, 1)
                paper = max(without[m], without[1] + 2e3 * model.num_layers * way)
                token_ms = measured(delay_us, mbit, m)
                print(f"{delay_us:8} {mbit or 'all':>7} {m:2} {token_ms:11.2f} {paper:9.2f}"
                      f" {token_ms / paper:6.2f}", flush=True)


if __name__ == "__main__":
    main()
