#!/usr/bin/env python3
"""What response_format costs a step.

    bench_format.py [--bin build/release/bin] [--model DIRECTORY] [--attention-workers 2]
                    [--streams 8] [--requests 32] [--tokens 250] [--rounds 25]

afdd with the demo model, two attention workers and one FFN worker. Rounds of requests over HTTP, of
three kinds in turn: free, any JSON object, and an object of 60 strings that each have a maxLength.
A line for each kind: CPU of the attention workers a token, median of the rounds; of the first
round, which compiles its format and computes the masks; and of the same texts once more at the end,
when those are there; how many tokens these texts have, since the fewer share a step, the more each
costs; the time of a round, median.
"""
import argparse
import concurrent.futures
import json
import pathlib
import statistics
import time
import urllib.request

from running_afdd import RunningAfdd

COUNTED = {f"field_{i}": {"type": "string", "maxLength": 40 + i} for i in range(60)}
KINDS = {
    "free": None,
    "JSON object": {"type": "object"},
    "60 counted strings": {"type": "object", "properties": COUNTED, "required": list(COUNTED),
                           "additionalProperties": False},
}


def attention_workers(instance: RunningAfdd) -> list[pathlib.Path]:
    children = pathlib.Path(f"/proc/{instance.process.pid}/task/{instance.process.pid}/children")
    found = [pathlib.Path("/proc") / pid for pid in children.read_text().split()]
    return [path for path in found if "afd-attention-worker" in (path / "cmdline").read_text()]


def cpu_us(processes: list[pathlib.Path]) -> float:
    """Of all their threads."""
    return sum(int((task / "schedstat").read_text().split()[0])
               for process in processes for task in (process / "task").iterdir()) / 1e3


def ask(port: int, seed: int, tokens: int, schema: dict | None) -> int:
    body = {"prompt": "It was a fine morning", "max_tokens": tokens, "seed": seed,
            "ignore_eos": schema is None}
    if schema is not None:
        body["response_format"] = {"type": "json_schema",
                                   "json_schema": {"name": "answer", "schema": schema}}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--model")
    parser.add_argument("--attention-workers", default="2")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=25)
    arguments = parser.parse_args()
    model = ["--model", arguments.model] if arguments.model else ["--demo"]
    instance = RunningAfdd(arguments.bin,
                           [*model, "--attention-workers", arguments.attention_workers,
                            "--ffn-workers", "1"])
    workers = attention_workers(instance)
    rounds: dict[str, list[tuple[float, float, int]]] = {kind: [] for kind in KINDS}
    with concurrent.futures.ThreadPoolExecutor(arguments.streams) as streams:
        for index in [*range(arguments.rounds), 0]:
            for kind, schema in KINDS.items():
                begin, used = time.monotonic(), cpu_us(workers)
                seeds = range(1000 * index, 1000 * index + arguments.requests)
                tokens = sum(streams.map(
                    lambda seed: ask(instance.port, seed, arguments.tokens, schema), seeds))
                used = (cpu_us(workers) - used) / tokens
                rounds[kind].append((used, time.monotonic() - begin, tokens))
    instance.stop()
    for kind, of_kind in rounds.items():
        cpu, wall, tokens = zip(*of_kind)
        print(f"{kind:<20} {statistics.median(cpu[:-1]):6.1f} us a token; "
              f"first round {cpu[0]:6.1f}, its {tokens[0]} tokens again {cpu[-1]:6.1f}; "
              f"a round {statistics.median(wall[:-1]):.3f} s")


if __name__ == "__main__":
    main()
