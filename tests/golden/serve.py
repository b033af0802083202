#!/usr/bin/env python3
"""Serves a model with the real daemon and records what it answered, for compare_logprobs.py.

    serve.py --bin DIR --model DIR --jsonl FILE [--requests 20] [--seed 2] [--lengths 1,2,5,..]
             [--kv-tokens N] [--max-sequences N] [--residual bf16]
             [--router attention|ffn] [--topology disaggregated|colocated] [--same-as FILE]

Starts afdd of --bin (two attention workers, two FFN workers; colocated one of both), sends requests of random token ids
through afdctl, several at a time, and writes one JSON line for each: ids and log probabilities of
prompt and output. Half of them are sampled with a seed, so that the outputs are not only the
model's first choice.

Exits 0 when every request was answered and the daemon ended with 0. With --same-as FILE, what an
earlier run recorded, the answers must also be the same, to the last digit of every probability.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import layout_np

LENGTHS = (1, 2, 5, 17, 63, 64, 65, 128, 150, 200)
START_SECONDS = 60


class Daemon:
    """A running afdd of its own instance and runtime directory."""

    def __init__(self, bin_dir: pathlib.Path, model: pathlib.Path, topology: list[str],
                 runtime: str) -> None:
        self.bin = bin_dir
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": runtime,
                            "XDG_CACHE_HOME": runtime}
        self.instance = f"golden{os.getpid()}"
        self.log = open(pathlib.Path(runtime) / "afdd.log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [bin_dir / "afdd", "--instance", self.instance, "--model", model,
             "--micro-batches", "2", "--micro-batch-size", "32", *topology],
            env=self.environment, stderr=self.log, stdout=self.log)

    def ctl(self, *arguments: str) -> dict:
        done = subprocess.run(
            [self.bin / "afdctl", "--json", "--instance", self.instance, *arguments],
            env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"afdctl {arguments[0]}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                if self.ctl("status")["state"] == "ready":
                    return
            except RuntimeError:
                pass
            time.sleep(0.05)
        raise RuntimeError("afdd did not become ready")

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=START_SECONDS)


def record(daemon: Daemon, numeric_class: str, number: int, vocabulary: int, seed: int,
           lengths: tuple[int, ...]) -> dict:
    """Sends one request; the number decides all of it."""
    draw = random.Random(seed * 1000 + number)
    ids = [draw.randrange(vocabulary) for _ in range(lengths[number % len(lengths)])]
    sampling = ["--temperature", "1", "--seed", str(number)] if number % 2 else []
    answer = daemon.ctl(
        "generate", "--prompt-ids", ",".join(map(str, ids)), "--max-tokens", "24", "--ignore-eos",
        "--token-ids", "--logprobs", "--prompt-logprobs", *sampling)
    return {"numeric_class": numeric_class,
            "prompt_ids": answer["prompt_ids"], "output_ids": answer["token_ids"],
            "prompt_logprobs": [None, *answer["prompt_logprobs"]],
            "output_logprobs": answer["logprobs"]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--jsonl", type=pathlib.Path, required=True)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--lengths", default=LENGTHS, help="of the prompts, in turn",
                        type=lambda text: tuple(int(length) for length in text.split(",")))
    parser.add_argument("--kv-tokens", type=int)
    parser.add_argument("--max-sequences", type=int)
    parser.add_argument("--residual", choices=("bf16", "fp32"), default="fp32",
                        help="the default is that of afdd")
    parser.add_argument("--router", choices=("attention", "ffn"), default="attention")
    parser.add_argument("--topology", choices=("disaggregated", "colocated"),
                        default="disaggregated")
    parser.add_argument("--numeric-class", default="auto")
    parser.add_argument("--same-as", type=pathlib.Path)
    arguments = parser.parse_args()
    vocabulary = layout_np.read_config(arguments.model)["vocab_size"]
    topology = (["--topology", "colocated"] if arguments.topology == "colocated" else
                ["--attention-workers", "2", "--ffn-workers", "2", "--router", arguments.router])
    topology += ["--numeric-class", arguments.numeric_class, "--residual", arguments.residual]
    if arguments.kv_tokens is not None:
        topology += ["--kv-tokens", str(arguments.kv_tokens)]
    if arguments.max_sequences is not None:
        topology += ["--max-sequences", str(arguments.max_sequences)]
    with tempfile.TemporaryDirectory(prefix="afd-golden-") as runtime:
        daemon = Daemon(arguments.bin, arguments.model, topology, runtime)
        try:
            daemon.wait_ready()
            numeric_class = daemon.ctl("status")["numeric_class"].split("/")[0]
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                records = list(pool.map(
                    lambda number: record(
                        daemon, numeric_class, number, vocabulary, arguments.seed,
                        arguments.lengths),
                    range(arguments.requests)))
            status = daemon.stop()
        except Exception as error:
            daemon.stop()
            daemon.log.seek(0)
            print(f"{error}\n{daemon.log.read()}")
            return 1
    answers = "".join(json.dumps(line) + "\n" for line in records)
    arguments.jsonl.write_text(answers)
    print(f"{len(records)} requests answered; afdd ended with {status}")
    if arguments.same_as is not None and arguments.same_as.read_text() != answers:
        print(f"{arguments.jsonl} and {arguments.same_as} differ")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
