#!/usr/bin/env python3
"""Speed of the whole system beside llama.cpp's on the same weights, in turns on the same cores.

    git clone --depth 1 --branch v0.5.0 https://github.com/ggml-org/llama.cpp
    cmake -S llama.cpp -B llama.cpp/build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON
    cmake --build llama.cpp/build --target llama-batched-bench llama-quantize
    bench_llama_cpp.py --llama-cpp llama.cpp --work DIR [--bin build/release/bin]
                       [--model mla,gqa] [--format bf16,int8,int4] [--streams 1,8,32] [--rounds 3]

Two random models of 8 layers with 32 experts a layer, which DIR keeps: mla is the medium checkpoint
of tests/golden/make_checkpoint.py, gqa the same with grouped heads as Qwen3-MoE. Formats of about
the same size: bf16 beside the faster of BF16 and F16, row by row, since many processors multiply
one of them faster; int8 for experts and attention beside Q8_0; int4 in groups of 32 for experts,
int8 for attention, and int8 rows (int4_rows = int8), beside Q4_0, which multiplies int8 rows, too.

Decoding: so many streams behind prompts of 128 tokens. afd runs colocated, with a real client and
sampling (bench_decode.py); llama-batched-bench calls the library in its process and samples nothing.
Prompts of 512 tokens one at a time: afd up to the first token as the client sees it, llama.cpp
without sampling one. Both have as many threads as there are cores.

A row: medians of the rounds in tokens a second, the ratio of the medians, and in brackets the
lowest and the highest ratio of a round. Needs NumPy.
"""
import argparse
import importlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

import bench_decode
from bench_decode import LONG_PROMPT_TOKENS, LONG_PROMPTS, PROMPT_TOKENS
from gguf_model import write_gguf

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
# What gqa has of the medium checkpoint, and what else.
SHARED = ["hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers",
          "vocab_size", "max_position_embeddings"]
GROUPED = {"num_experts": 32, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128}
# What afd-quantize makes of bf16, what afdd runs it with, and llama.cpp's types.
FORMATS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "bf16": ([], [], ["BF16", "F16"]),
    "int8": (["--experts", "int8", "--attention", "int8"], [], ["Q8_0"]),
    "int4": (["--experts", "int4", "--attention", "int8"], ["--int4-rows", "int8"], ["Q4_0"]),
}
PREFILL = "prefill 512"
Speeds = dict[str, float]  # Tokens a second of each row.


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(*command: str | pathlib.Path) -> str:
    """What it prints. Its end is ours, with the last that it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {done.returncode}. It said:\n"
                         f"{done.stderr[-2000:]}")
    return done.stdout


def case(streams: int) -> str:
    return f"{streams} stream{'s' if streams > 1 else ''}"


class Models:
    """The files of both programs. A file that is there stays; one that is not complete has another
    name."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.bin, self.llama_cpp, self.work = arguments.bin, arguments.llama_cpp, arguments.work
        self.work.mkdir(parents=True, exist_ok=True)

    def made(self, name: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
        path = self.work / name
        if path.exists():
            return path
        say(f"making {path}")
        part = self.work / f"{name}.part"
        make(part)
        return part.rename(path)

    def ours(self, name: str, format_: str) -> pathlib.Path:
        def make(part: pathlib.Path) -> None:
            if format_ == "bf16":
                shutil.rmtree(part, ignore_errors=True)
                self.make_checkpoint(name, part)
            else:
                run(self.bin / "afd-quantize", self.ours(name, "bf16"), *FORMATS[format_][0],
                    "--out", part)
        return self.made(f"{name}-{format_}", make)

    def theirs(self, name: str, type_: str) -> pathlib.Path:
        def make(part: pathlib.Path) -> None:
            if type_ == "BF16":
                sys.path.insert(0, str(self.llama_cpp / "gguf-py"))
                write_gguf(self.ours(name, "bf16"), part, importlib.import_module("gguf"))
            else:
                run(self.llama_cpp / "build/bin/llama-quantize", self.theirs(name, "BF16"), part,
                    type_)
        return self.made(f"{name}-{type_}.gguf", make)

    @staticmethod
    def make_checkpoint(name: str, path: pathlib.Path) -> None:
        sys.path.insert(0, str(GOLDEN))
        grouped = importlib.import_module("grouped_checkpoint")
        make_checkpoint = importlib.import_module("make_checkpoint")
        medium = make_checkpoint.VARIANTS["medium"]
        grouped.VARIANTS["gqa"] = {
            **grouped.QWEN3, **{key: medium[key] for key in SHARED}, **GROUPED}
        make_checkpoint.make_checkpoint({"mla": "medium", "gqa": "gqa"}[name], path)


def run_ours(arguments: argparse.Namespace, model: pathlib.Path, format_: str) -> Speeds:
    flags = [*bench_decode.TOPOLOGIES["colocated"], "--micro-batches", "1",
             "--micro-batch-size", str(LONG_PROMPT_TOKENS), *FORMATS[format_][1]]
    weights = bench_decode.Weights.read(model)
    with tempfile.TemporaryDirectory(prefix="afd-bench-") as runtime:
        daemon = bench_decode.Daemon(arguments, model, flags, runtime)
        try:
            speeds = {case(streams): bench_decode.decode(
                daemon, weights, streams, arguments.tokens * (2 if streams == 1 else 1)).speed
                for streams in arguments.streams}
            return speeds | {PREFILL: bench_decode.prefill(daemon, weights).speed}
        finally:
            daemon.stop()


def batched_bench(arguments: argparse.Namespace, model: pathlib.Path, prompt: int, tokens: int,
                  streams: list[int]) -> list[dict]:
    """The lines of one run."""
    threads = str(len(os.sched_getaffinity(0)))
    said = run(
        arguments.llama_cpp / "build/bin/llama-batched-bench", "-m", model,
        "-c", str(max(streams) * (prompt + tokens)), "-b", "2048", "-ub", str(LONG_PROMPT_TOKENS),
        "-npp", str(prompt), "-ntg", str(tokens), "-npl", ",".join(map(str, streams)),
        "-t", threads, "-tb", threads, "--output-format", "jsonl")
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    if len(lines) != len(streams):
        raise SystemExit(f"llama-batched-bench printed {len(lines)} of {len(streams)} rows")
    return lines


def run_theirs(arguments: argparse.Namespace, model: pathlib.Path) -> Speeds:
    decode = batched_bench(arguments, model, PROMPT_TOKENS, arguments.tokens, arguments.streams)
    prompts = batched_bench(arguments, model, LONG_PROMPT_TOKENS, 1, [1] * LONG_PROMPTS)
    speeds = {case(row["pl"]): row["speed_tg"] for row in decode}
    return speeds | {PREFILL: statistics.median(row["speed_pp"] for row in prompts)}


def compare(arguments: argparse.Namespace, models: Models, name: str, format_: str) -> None:
    ours = models.ours(name, format_)
    theirs = [models.theirs(name, type_) for type_ in FORMATS[format_][2]]
    rounds = []
    for number in range(arguments.rounds):
        say(f"{name} {format_}: round {number + 1} of {arguments.rounds}")
        mine = run_ours(arguments, ours, format_)
        others = [run_theirs(arguments, model) for model in theirs]
        rounds.append((mine, {row: max(other[row] for other in others) for row in mine}))
    for row in rounds[0][0]:
        afd, llama = (statistics.median(speeds[side][row] for speeds in rounds) for side in (0, 1))
        ratios = [mine[row] / best[row] for mine, best in rounds]
        print(f"{name:5} {format_:5} {row:11} {afd:9.1f} {llama:10.1f} {afd / llama:6.2f}"
              f"  ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True,
                        help="a checkout with build/bin/llama-batched-bench and llama-quantize")
    parser.add_argument("--work", type=pathlib.Path, required=True,
                        help="a folder for models; about 3 GiB")
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--model", type=words, default=["mla", "gqa"])
    parser.add_argument("--format", type=words, default=list(FORMATS))
    parser.add_argument("--streams", type=lambda text: [int(word) for word in text.split(",")],
                        default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=64,
                        help="of each stream; afd gets twice as many of a single one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flag", action="append", default=[], help="one more for afdd: --flag=...")
    arguments = parser.parse_args()
    for program in ("llama-batched-bench", "llama-quantize"):
        if not (arguments.llama_cpp / "build/bin" / program).exists():
            parser.error(f"{arguments.llama_cpp}/build/bin has no {program}; --help says how to"
                         " build it")
    models = Models(arguments)
    print(f"{'':23} {'afd tok/s':>9} {'llama.cpp':>10} {'ratio':>6}", flush=True)
    for name in arguments.model:
        for format_ in arguments.format:
            compare(arguments, models, name, format_)


if __name__ == "__main__":
    main()
