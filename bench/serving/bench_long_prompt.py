#!/usr/bin/env python3
"""Long prompts: the time to the first token beside tokens x (matrices + attention over what is
there), the memory that it takes, and how soon a cancel in the middle of one takes effect.

    bench_long_prompt.py [--model DIR] [--bin build/release/bin] [--tokens 512,2048,8192,32768]
                         [--cancel-tokens 8192] [--cancels 10] [--flags "..."]

Without --model a random checkpoint of 4 layers, 8 heads and a latent of 64 + 16 (made here, needs
NumPy). The context is raised to the longest prompt in a copy of config.json. One process with
experts and attention on all cores; prompts of random tokens, one at a time, best of a few runs that
take 10 s together, once where one takes longer.

The model has two rates, of the matrices and of attention (scores and weighted sums), which are
fitted to all lengths at once:

    seconds = tokens * matrices / rate + tokens * (tokens + 1) / 2 * attention / rate

A row: tokens a second, seconds beside the model's (within 15 % or not), the share of attention in
it, and the most memory that the worker had so far. Last, as ratios to the bf16 peak of all cores:
the two rates.

A cancel is a client that hangs up at a random moment; it has taken effect when the worker has no
sequence any more (its blocks are free, and it does nothing).
"""
import argparse
import json
import pathlib
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time

from bench_decode import Weights
from bench_http import frames
from bench_prefix import first_token_us, request
from running_afdd import RunningAfdd

SECONDS_OF_A_ROW = 10
WITHIN = 0.15
SEQUENCES = 7  # daemon/metrics/metrics.h
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"


def make_small(out: pathlib.Path) -> None:
    sys.path.insert(0, str(GOLDEN))
    import make_checkpoint  # Needs NumPy, which only this needs.
    make_checkpoint.VARIANTS["long"] = {"num_attention_heads": 8, "num_key_value_heads": 8}
    make_checkpoint.make_checkpoint("long", out)


def with_context(model: pathlib.Path, tokens: int, out: pathlib.Path) -> pathlib.Path:
    """The same model in the folder `out`, for so many tokens."""
    out.mkdir()
    for path in model.iterdir():
        (out / path.name).symlink_to(path.resolve())
    config = json.loads((model / "config.json").read_text())
    config["max_position_embeddings"] = tokens
    (out / "config.json").unlink()
    (out / "config.json").write_text(json.dumps(config))
    return out


class Instance(RunningAfdd):
    def __init__(self, arguments: argparse.Namespace, model: pathlib.Path, tokens: int) -> None:
        super().__init__(arguments.bin,
                         ["--model", model, "--topology", "colocated", "--attention-workers", "1",
                          "--prefix-cache", "false", "--kv-tokens", str(tokens + 64),
                          *arguments.flags.split()])
        self.vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
        name = pathlib.Path(self.socket_path).stem
        self.metrics, = pathlib.Path("/dev/shm").glob(f"afd-{name}-*-attn0-metrics")
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.worker, = children.read_text().split()

    def connect(self, draw: random.Random, tokens: int) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.socket_path)
        ids = [draw.randrange(2, min(self.vocabulary, 2000)) for _ in range(tokens)]
        connection.sendall(request(1, ids))
        return connection

    def seconds(self, draw: random.Random, tokens: int) -> float:
        """To the first token, by afdd's clock."""
        received = b""
        with self.connect(draw, tokens) as connection:
            while True:
                received += connection.recv(1 << 18)
                done = [us for us in map(first_token_us, frames(received)) if us is not None]
                if done:
                    return done[0] / 1e6

    def num_sequences(self) -> int:
        with open(self.metrics, "rb") as file:
            file.seek(8 * SEQUENCES)
            return struct.unpack("<Q", file.read(8))[0]

    def peak_mib(self) -> float:
        status = pathlib.Path(f"/proc/{self.worker}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines()
                    if line.startswith("VmHWM")) / 1024


def best_seconds(instance: Instance, draw: random.Random, tokens: int) -> float:
    times: list[float] = []
    while not times or sum(times) + min(times) < SECONDS_OF_A_ROW:
        times.append(instance.seconds(draw, tokens))
    return min(times)


def fit(rows: list[tuple[float, float, float]]) -> tuple[float, float]:
    """Seconds of a multiply-add of the matrices and of one of attention: the least squares of the
    relative errors. A row has both numbers, and the seconds."""
    scaled = [(matrices / seconds, attention / seconds) for matrices, attention, seconds in rows]
    mm = sum(m * m for m, _ in scaled)
    aa = sum(a * a for _, a in scaled)
    ma = sum(m * a for m, a in scaled)
    m, a = sum(m for m, _ in scaled), sum(a for _, a in scaled)
    determinant = mm * aa - ma * ma
    return (m * aa - a * ma) / determinant, (a * mm - m * ma) / determinant


def cancel_ms(instance: Instance, draw: random.Random, tokens: int, seconds: float) -> float:
    with instance.connect(draw, tokens):
        while instance.num_sequences() == 0:
            time.sleep(0.001)
        time.sleep(seconds * draw.uniform(0.1, 0.8))
        if instance.num_sequences() == 0:
            raise SystemExit("the prompt ended before it was cancelled")
    hung_up = time.monotonic()
    while instance.num_sequences() != 0:
        time.sleep(0.0002)
    return (time.monotonic() - hung_up) * 1e3


def measure(arguments: argparse.Namespace, model: pathlib.Path, instance: Instance) -> None:
    config = json.loads((model / "config.json").read_text())
    matrices = Weights.read(model).token_products
    attention = config["num_hidden_layers"] * config["num_attention_heads"] * (
        2 * config["kv_lora_rank"] + config["qk_rope_head_dim"])
    draw = random.Random(1)
    instance.seconds(draw, min(arguments.tokens))
    rows, memory = [], []
    for tokens in arguments.tokens:
        seconds = best_seconds(instance, draw, tokens)
        rows.append((tokens * matrices, tokens * (tokens + 1) / 2 * attention, seconds))
        memory.append(instance.peak_mib())
        print(f"{tokens:6} tokens: {seconds:.3f} s", file=sys.stderr, flush=True)
    of_matrices, of_attention = fit(rows)
    print(f"{'tokens':>7} {'tok/s':>9} {'seconds':>9} {'model':>9} {'ratio':>6}          "
          f"{'attention':>9} {'peak MiB':>9}")
    for tokens, (m, a, seconds), mib in zip(arguments.tokens, rows, memory):
        predicted = m * of_matrices + a * of_attention
        ratio = seconds / predicted
        verdict = "met" if abs(ratio - 1) <= WITHIN else "NOT met"
        print(f"{tokens:7} {tokens / seconds:9.0f} {seconds:9.3f} {predicted:9.3f} {ratio:6.2f} "
              f"{verdict:8} {a * of_attention / predicted:9.2f} {mib:9.0f}")
    limits = json.loads(subprocess.run([arguments.bin / "bench_limits", "--short"], check=True,
                                       capture_output=True, text=True).stdout)
    peak = limits["bf16_gflops"] * 1e9
    print(f"matrices {2 / of_matrices / peak:.2f} and attention {2 / of_attention / peak:.2f} of "
          f"the bf16 peak, {peak / 1e9:.0f} GFLOP/s")
    tokens = arguments.cancel_tokens
    if tokens not in arguments.tokens or arguments.cancels == 0:
        return
    seconds = rows[arguments.tokens.index(tokens)][2]
    times = sorted(cancel_ms(instance, draw, tokens, seconds) for _ in range(arguments.cancels))
    print(f"cancel within a prompt of {tokens}: median {times[len(times) // 2]:.1f} ms, longest "
          f"{times[-1]:.1f} ms of {len(times)}; target 50 ms: "
          f"{'met' if times[-1] <= 50 else 'NOT met'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--tokens", type=lambda text: [int(word) for word in text.split(",")],
                        default=[512, 2048, 8192, 32768])
    parser.add_argument("--cancel-tokens", type=int, default=8192)
    parser.add_argument("--cancels", type=int, default=10)
    parser.add_argument("--flags", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="afd-bench-") as directory:
        if arguments.model is None:
            arguments.model = pathlib.Path(directory) / "small"
            make_small(arguments.model)
        tokens = max(arguments.tokens) + 64
        model = with_context(arguments.model, tokens, pathlib.Path(directory) / "model")
        instance = Instance(arguments, model, tokens)
        try:
            measure(arguments, model, instance)
        finally:
            instance.stop()


if __name__ == "__main__":
    main()
