#!/usr/bin/env python3
"""Throughput of the demo model in several topologies on this machine, one after another.

    topologies.py [--bin build/release/bin] [--rounds 5] [--duration 4s] [--concurrency 12]

What more workers than cores cost: on two cores, A3F2 has five data threads and must keep at least
75 % of the throughput of A1F1. Colocated is the same work without windows. With router=ffn each FFN
worker runs the gate.

Each round runs every topology once, so that a busy neighbour of this machine hits all alike.
Prints medians of the output tokens per second and the median of the rounds' ratios to A1F1.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

TOPOLOGIES = {
    "A1F1": ["--attention-workers", "1", "--ffn-workers", "1"],
    "A2F1": ["--attention-workers", "2", "--ffn-workers", "1"],
    "A1F2": ["--attention-workers", "1", "--ffn-workers", "2"],
    "A1F2 router=ffn": ["--attention-workers", "1", "--ffn-workers", "2", "--router", "ffn"],
    "A3F2": ["--attention-workers", "3", "--ffn-workers", "2"],
    "colocated": ["--topology", "colocated", "--attention-workers", "1"],
}
START_SECONDS = 60


def wait_ready(ctl: list, environment: dict) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        status = subprocess.run([*ctl, "--json", "status"], env=environment, text=True,
                                capture_output=True, check=False)
        if status.returncode == 0 and json.loads(status.stdout)["state"] == "ready":
            return
        time.sleep(0.05)
    raise SystemExit("afdd did not become ready")


def measure(arguments: argparse.Namespace, flags: list[str]) -> float:
    """Starts afdd with `flags`, drives it, stops it; output tokens per second."""
    name = f"bench{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="afd-bench-") as runtime:
        environment = {**os.environ, "XDG_RUNTIME_DIR": runtime, "XDG_CACHE_HOME": runtime}
        programs = {program: [arguments.bin / program, "--instance", name]
                    for program in ("afdd", "afdctl", "afd-load")}
        daemon = subprocess.Popen([*programs["afdd"], "--demo", "--log-level", "warn", *flags],
                                  env=environment)
        try:
            wait_ready(programs["afdctl"], environment)
            load = subprocess.run(
                [*programs["afd-load"], "--concurrency", str(arguments.concurrency),
                 "--duration", arguments.duration, "--max-tokens", "64", "--ignore-eos",
                 "--warmup", "32", "--out", runtime, "--json"],
                env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                check=True)
        finally:
            daemon.terminate()
            daemon.wait()
    return json.loads(load.stdout)["levels"][0]["output_tokens_per_s"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", default="4s")
    parser.add_argument("--concurrency", type=int, default=12)
    arguments = parser.parse_args()
    rounds = []
    for number in range(1, arguments.rounds + 1):
        rounds.append({name: measure(arguments, flags) for name, flags in TOPOLOGIES.items()})
        print(f"round {number}: " + "  ".join(
            f"{name} {value:.0f} tok/s" for name, value in rounds[-1].items()), flush=True)
    print(f"{os.cpu_count()} cores, {arguments.concurrency} requests in flight")
    for name in TOPOLOGIES:
        speed = statistics.median(r[name] for r in rounds)
        ratio = statistics.median(r[name] / r["A1F1"] for r in rounds)
        print(f"{name:16} {speed:8.0f} tok/s  {ratio:5.2f} of A1F1")


if __name__ == "__main__":
    main()
