#!/usr/bin/env python3
"""Time to the first token of long prompts: through windows, and in two phases.

    tests/golden/make_checkpoint.py --variant medium --out DIR
    bench_dispatch.py --model DIR [--bin build/release/bin] [--prompts 512,1024,2048]
                      [--ffn-workers 1] [--rounds 5] [--flag ...]

Each round starts an afdd with dispatch=window, then one with dispatch=two_phase, otherwise alike,
and sends a prompt of each length, after one that warms up. A busy neighbour of this machine hits
both kinds of round alike, and which pages a process gets is drawn anew. Prints medians, and the
median of the rounds' ratios.
"""
import argparse
import csv
import pathlib
import shutil
import statistics
import tempfile

from bench_decode import Daemon

DISPATCHES = ["window", "two_phase"]


def first_token_seconds(daemon: Daemon, prompt_tokens: int) -> float:
    daemon.load(1, 1, prompt_tokens, 1).wait()
    with open(daemon.results / "requests.csv", encoding="utf-8") as file:
        row, = csv.DictReader(file)
    shutil.rmtree(daemon.results)  # afd-load writes into no folder that is there.
    if int(row["num_prompt_tokens"]) != prompt_tokens:
        raise SystemExit(f"the prompt does not have {prompt_tokens} tokens")
    return (int(row["first_token_us"]) - int(row["sent_us"])) / 1e6


def measure(arguments: argparse.Namespace, dispatch: str) -> list[float]:
    """Seconds to the first token of each prompt, of an afdd of its own."""
    with tempfile.TemporaryDirectory(prefix="afd-bench-") as runtime:
        flags = ["--dispatch", dispatch, "--ffn-workers", str(arguments.ffn_workers)]
        daemon = Daemon(arguments, arguments.model, flags, runtime)
        try:
            first_token_seconds(daemon, arguments.prompts[-1])
            return [first_token_seconds(daemon, tokens) for tokens in arguments.prompts]
        finally:
            daemon.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--prompts", type=numbers, default=[512, 1024, 2048])
    parser.add_argument("--ffn-workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flag", action="append", default=[], help="one more for afdd: --flag=...")
    arguments = parser.parse_args()
    rounds = [{dispatch: measure(arguments, dispatch) for dispatch in DISPATCHES}
              for _ in range(arguments.rounds)]
    print(f"{'prompt':>8} {'window tok/s':>13} {'two_phase tok/s':>16} {'ratio':>6}")
    for i, tokens in enumerate(arguments.prompts):
        window, two_phase = (statistics.median(round[dispatch][i] for round in rounds)
                             for dispatch in DISPATCHES)
        ratio = statistics.median(round["window"][i] / round["two_phase"][i] for round in rounds)
        print(f"{tokens:8} {tokens / window:13.1f} {tokens / two_phase:16.1f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
