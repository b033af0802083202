#!/usr/bin/env python3
"""Speed of the whole system on a model larger than the cache, beside what the machine allows.

    tests/golden/make_checkpoint.py --variant medium --out DIR
    bench_decode.py --model DIR [--model DIR ...] [--bin build/release/bin]
                    [--topology colocated,1A1F] [--micro-batches 1,2] [--streams 1,8,16,32]

For each model, topology and M: starts afdd on all cores of the machine, waits until its workers
have read and checked all experts, sends as many requests at once as there are streams (128 random
tokens each, sampled, no stop token), and counts the tokens between the moment when all of them
generate and the first one's end. Then prompts of 512 tokens, one at a time, with M that of the row
and one micro-batch as long as the prompt.

The bound of a decode row: the bytes that a step must read (all weights but the embedding and the
experts, the experts that the rows of the step chose, counted by the worker, and the cache rows),
divided by the read bandwidth of all cores, measured before and after the row. Of a prefill row: the
multiply-adds of the matrices that a token passes, divided by the bf16 peak of all cores.

Virtual cores move between hardware threads. The round trip of a flag tells (bench_limits): a row
before and after which it is not of one kind is marked with "moved". Above 800 ns (?) other
processes share the cores. Repeat such rows.
"""
import argparse
import csv
import dataclasses
import json
import math
import mmap
import os
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable

TOPOLOGIES = {"colocated": ["--topology", "colocated"],
              "1A1F": ["--attention-workers", "1", "--ffn-workers", "1"]}
PROMPT_TOKENS = 128
LONG_PROMPT_TOKENS = 512
LONG_PROMPTS = 6
START_SECONDS = 120
# Characters that no merge of the checkpoint's tokenizer joins: a token each.
CHARACTERS = [c for c in map(chr, range(0x21, 0x7F)) if not c.islower()]
# daemon/metrics/metrics.h
TOKENS, STEPS, ROWS, EXPERTS = 0, 2, 3, 11


@dataclasses.dataclass
class Weights:
    """Bytes and multiply-adds of a checkpoint by when a step needs them."""
    always_bytes: int
    expert_bytes: int
    cache_bytes_per_position: int
    token_products: int
    dtype: str

    @staticmethod
    def read(model: pathlib.Path) -> "Weights":
        config = json.loads((model / "config.json").read_text())
        always, experts, num_experts, products, dtypes = 0, 0, 0, 0, set()
        for path in sorted(model.glob("*.safetensors")):
            with open(path, "rb") as file:
                header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            header.pop("__metadata__", None)
            for name, tensor in header.items():
                num_bytes = tensor["data_offsets"][1] - tensor["data_offsets"][0]
                if name == "model.embed_tokens.weight":
                    continue
                if ".mlp.experts." in name:
                    experts += num_bytes
                    num_experts += name.endswith("down_proj.weight")
                    dtypes.add(tensor["dtype"])
                else:
                    always += num_bytes
                    if len(tensor["shape"]) == 2:
                        products += math.prod(tensor["shape"])
        expert_products = 3 * config["hidden_size"] * config["moe_intermediate_size"]
        num_moe = num_experts // config.get("n_routed_experts", config.get("num_experts"))
        products += num_moe * config["num_experts_per_tok"] * expert_products
        cache = 2 * config["num_hidden_layers"] * Weights.cached_values(config)
        return Weights(always, experts // num_experts, cache, products, "+".join(sorted(dtypes)))

    @staticmethod
    def cached_values(config: dict) -> int:
        """Of a position in a layer."""
        if "kv_lora_rank" in config:
            return config["kv_lora_rank"] + config["qk_rope_head_dim"]
        return 2 * config["num_key_value_heads"] * config["head_dim"]


class Daemon:
    """A running afdd of its own runtime directory, and its first attention worker's counters."""

    def __init__(self, arguments: argparse.Namespace, model: pathlib.Path, flags: list[str],
                 runtime: str) -> None:
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": runtime}
        self.bin = arguments.bin
        self.runtime = pathlib.Path(runtime)
        self.instance = pathlib.Path(runtime).name.replace("-", "_")
        self.process = subprocess.Popen(
            [self.bin / "afdd", "--instance", self.instance, "--model", model, "--log-level",
             "warn", *flags, *arguments.flag], env=self.environment)
        deadline = time.monotonic() + START_SECONDS
        while self.status().get("state") != "ready":
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("afdd did not become ready")
            time.sleep(0.05)
        name, = pathlib.Path("/dev/shm").glob(f"afd-{self.instance}-*-attn0-metrics")
        with open(name, "rb") as file:
            self.metrics = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.read_all_weights()

    def read_all_weights(self) -> None:
        """Workers read and check mapped experts beside the first requests, which slows these."""
        self.load(1, 1, PROMPT_TOKENS, 2).wait()
        deadline = time.monotonic() + START_SECONDS
        while any(worker["weight_bytes_left"] > 0 for worker in self.status()["workers"]):
            if time.monotonic() > deadline:
                raise SystemExit("the workers did not read all weights")
            time.sleep(0.05)

    def status(self) -> dict:
        """Without a state if afdd does not answer yet."""
        done = subprocess.run(
            [self.bin / "afdctl", "--json", "--instance", self.instance, "status"],
            env=self.environment, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def counters(self) -> tuple[int, ...]:
        return struct.unpack_from("<12Q", self.metrics)

    def load(self, streams: int, requests: int, prompt_tokens: int,
             max_tokens: int) -> subprocess.Popen:
        draw = random.Random(f"{streams} {prompt_tokens} {max_tokens}")
        self.results = self.runtime / f"results{streams}-{prompt_tokens}-{max_tokens}"
        prompts = self.runtime / "prompts.txt"
        # One token of each prompt is the begin token that afdd adds. afd-load draws from the lines:
        # so many that two requests hardly ever get the same.
        prompts.write_text("".join("".join(draw.choices(CHARACTERS, k=prompt_tokens - 1)) + "\n"
                                   for _ in range(100 * requests)))
        self.load_log = self.runtime / "load.log"
        command = [
            self.bin / "afd-load", "--instance", self.instance, "--concurrency", str(streams),
            "--requests", str(requests), "--prompts", prompts, "--max-tokens", str(max_tokens),
            "--ignore-eos", "--temperature", "1", "--warmup", "0", "--request-timeout", "1h",
            "--out", self.results, "--json"]
        with open(self.load_log, "w", encoding="utf-8") as log:
            return subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL,
                                    stderr=log)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def limits(arguments: argparse.Namespace) -> dict[str, float]:
    return json.loads(subprocess.run([arguments.bin / "bench_limits", "--short"], check=True,
                                     capture_output=True, text=True).stdout)


def placement(round_trip_ns: float) -> str:
    """Where the first two cores are, from the time of a flag."""
    return next(kind for kind, limit in (("S", 85), ("C", 260), ("X", 800), ("?", math.inf))
                if round_trip_ns < limit)


@dataclasses.dataclass
class Row:
    """What one measurement gave."""
    speed: float  # Tokens a second.
    bound: Callable[[dict[str, float]], float]  # The same, of the machine's limits.
    weight_bytes: float  # Of a token.
    note: str = ""


def wait_for(daemon: Daemon, load: subprocess.Popen,
             reached: Callable[[tuple[int, ...]], bool]) -> tuple[float, tuple[int, ...]]:
    """The time and counters of the first look that finds it; a look costs 30 us of a core."""
    while True:
        now, counters = time.monotonic(), daemon.counters()
        if reached(counters):
            return now, counters
        if load.poll() is not None:
            raise SystemExit("afd-load ended before all streams generated; try --tokens 256. It said:"
                             f"\n{daemon.load_log.read_text(encoding='utf-8')}")
        time.sleep(0.003)


def decode(daemon: Daemon, weights: Weights, streams: int, tokens: int) -> Row:
    """Counts between the end of the prompts and shortly before the first stream ends."""
    start = daemon.counters()
    load = daemon.load(streams, streams, PROMPT_TOKENS, tokens)
    prompt_rows = streams * PROMPT_TOKENS
    # Streams that were admitted first are ahead by the steps that the others' prompts take.
    margin = streams * (8 + prompt_rows // 256)
    generated = lambda c: c[ROWS] - start[ROWS] - prompt_rows
    began, first = wait_for(daemon, load, lambda c: generated(c) >= margin)
    # A look falls somewhere into a step: begin at the end of the next one.
    began, first = wait_for(daemon, load, lambda c: c[STEPS] > first[STEPS])
    end_rows = streams * tokens - margin
    ended, last = wait_for(daemon, load, lambda c: generated(c) >= end_rows)
    ended, last = wait_for(daemon, load, lambda c: c[STEPS] > last[STEPS])
    load.wait()
    rows, steps = last[ROWS] - first[ROWS], last[STEPS] - first[STEPS]
    mean_position = PROMPT_TOKENS + (generated(first) + generated(last)) / 2 / streams
    expert_bytes = (last[EXPERTS] - first[EXPERTS]) * weights.expert_bytes
    weight_bytes = steps * weights.always_bytes + expert_bytes
    total = weight_bytes + rows * mean_position * weights.cache_bytes_per_position
    return Row(rows / (ended - began),
               lambda limit: rows * limit["read_gbytes_per_s"] * 1e9 / total,
               weight_bytes / rows,
               f"{(last[EXPERTS] - first[EXPERTS]) / steps:.0f} experts/step")


def prefill(daemon: Daemon, weights: Weights) -> Row:
    """Prompts one after another; the time to the first token as the client sees it."""
    daemon.load(1, LONG_PROMPTS, LONG_PROMPT_TOKENS, 1).wait()
    with open(daemon.results / "requests.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if any(int(row["num_prompt_tokens"]) != LONG_PROMPT_TOKENS for row in rows):
        raise SystemExit(f"the prompts do not have {LONG_PROMPT_TOKENS} tokens")
    seconds = statistics.median(
        (int(row["first_token_us"]) - int(row["sent_us"])) / 1e6 for row in rows)
    flops = 2 * weights.token_products
    return Row(LONG_PROMPT_TOKENS / seconds, lambda limit: limit["bf16_gflops"] * 1e9 / flops,
               weights.always_bytes / LONG_PROMPT_TOKENS)


def measure(arguments: argparse.Namespace, daemon: Daemon, weights: Weights, name: str) -> None:
    cases: list[tuple[str, Callable[[], Row]]] = [
        (f"{streams:3} streams", lambda n=streams: decode(
            daemon, weights, n, arguments.tokens * (2 if n == 1 else 1)))
        for streams in arguments.streams]
    if not arguments.no_prefill:
        cases.append(("prefill 512", lambda: prefill(daemon, weights)))
    for case, run in cases:
        before = limits(arguments)
        row = run()
        after = limits(arguments)
        limit = {key: (before[key] + after[key]) / 2 for key in before}
        bound = row.bound(limit)
        kinds = [placement(each["flag_round_trip_ns"]) for each in (before, after)]
        moved = "  moved" if kinds[0] != kinds[1] or "?" in kinds else ""
        print(f"{name:20} {case:11} {row.speed:8.1f} {bound:8.1f} {row.speed / bound:6.2f}"
              f" {row.weight_bytes / 1e6:8.1f} {limit['read_gbytes_per_s']:6.1f}"
              f" {limit['bf16_gflops']:6.0f}  {before['flag_round_trip_ns']:4.0f}"
              f" {after['flag_round_trip_ns']:4.0f} {''.join(kinds)}{moved}  {row.note}",
              flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser.add_argument("--model", type=pathlib.Path, action="append", required=True)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--topology", type=lambda text: text.split(","),
                        default=list(TOPOLOGIES))
    parser.add_argument("--micro-batches", type=numbers, default=[1, 2])
    parser.add_argument("--streams", type=numbers, default=[1, 8, 16, 32])
    parser.add_argument("--tokens", type=int, default=128,
                        help="of each stream; twice as many of a single one")
    parser.add_argument("--no-prefill", action="store_true")
    parser.add_argument("--flag", action="append", default=[], help="one more for afdd: --flag=...")
    arguments = parser.parse_args()
    print(f"{'':20} {'':11} {'tok/s':>8} {'bound':>8} {'ratio':>6} {'MB/tok':>8} {'GB/s':>6}"
          f" {'GF/s':>6}  flag ns, placement")
    for model in arguments.model:
        weights = Weights.read(model)
        for topology in arguments.topology:
            for m in arguments.micro_batches:
                flags = [*TOPOLOGIES[topology], "--micro-batches", str(m),
                         "--micro-batch-size", str(LONG_PROMPT_TOKENS)]
                with tempfile.TemporaryDirectory(prefix="afd-bench-") as runtime:
                    daemon = Daemon(arguments, model, flags, runtime)
                    try:
                        measure(arguments, daemon, weights,
                                f"{weights.dtype} {topology} M={m}")
                    finally:
                        daemon.stop()


if __name__ == "__main__":
    main()
