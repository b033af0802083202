#!/usr/bin/env python3
"""What a step consists of: the processor's time of a running instance by part.

    tests/golden/make_checkpoint.py --variant medium --out DIR
    bench_profile.py --model DIR [--model DIR ...] [--bin build/release/bin]
                     [--topology colocated,1A1F] [--streams 1,8,32]

Needs perf (Debian's linux-perf) and permission to use it; the programs must not be stripped. As in
bench_decode.py, so many streams of 128 random prompt tokens generate at once, and then prompts of
512 tokens come one at a time. Meanwhile perf samples all processes of the instance, 2000 times a
second of processor time.

A table of the model and topology: for each part its per cent of the samples in each of these cases.
A part is what functions of such names do (PARTS below; the first that fits); waits are spinning,
sleeping and waking, for the other thread or the other process. Then every function that has more
than --above (3) per cent of a case, with its part.
"""
import argparse
import collections
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from bench_decode import LONG_PROMPTS, LONG_PROMPT_TOKENS, PROMPT_TOKENS, ROWS, TOPOLOGIES
from bench_decode import Daemon, Weights, wait_for

PARTS = [
    ("waits for a thread or process",
     r"^\[k\]|ThreadPool|AdaptiveWait|sched_yield|futex|nanosleep|clock_gettime|steady_now|"
     r"^std::chrono|epoll|ready_scan|ReadyScan|scan\(|WindowLane::ready|look_for"),
    ("attention", r"attend|float_sums|accumulate|score|softmax|[hH]eads|[pP]ositions|latent|expand"),
    ("activation of experts", r"swiglu|activate|silu"),
    ("rounding and scaling of sums", r"round_|scale_tile|scale_row|exp_row"),
    ("quantising of rows", r"quantise|MultiplyByFixedPoint|encode_fp8"),
    ("norms and residual",
     r"sum_of_squares|divide_row|add_row|moments|norm|residual|Residual|rope|rotate"),
    ("router", r"gating|Gating|top_k|topk|Router|router"),
    ("sorting and weighted sums of experts",
     r"sort|Sort|combine|Combine|weighted|store_sums|permute|unpermute"),
    ("sampling", r"sampl|Sampl|logit|Logit|penalt"),
    ("products of matrices",
     r"tile|Tile|panel|Panel|int4_rows|fp8_rows|Int4Rows|Fp8Rows|unpack|linear|sum_int8"),
    ("copies", r"memcpy|memmove|memset|copy"),
]
REST = "all the rest"


def part_of(function: str) -> str:
    return next((part for part, pattern in PARTS if re.search(pattern, function)), REST)


def processes(daemon: Daemon) -> list[int]:
    pid = daemon.process.pid
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


class Samples:
    """perf while it lives; then the per cent of each function."""

    def __init__(self, daemon: Daemon) -> None:
        self.file = daemon.runtime / "perf.data"
        self.process = subprocess.Popen(
            ["perf", "record", "-q", "-e", "cpu-clock", "-F", "2000", "-o", self.file, "-p",
             ",".join(map(str, processes(daemon)))], stderr=subprocess.DEVNULL)

    def end(self) -> dict[str, float]:
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        report = subprocess.run(
            ["perf", "report", "-i", self.file, "--stdio", "-q", "--no-children", "--sort", "sym",
             "--percent-limit", "0"], capture_output=True, text=True, check=True).stdout
        found: dict[str, float] = collections.defaultdict(float)
        for line in report.splitlines():
            match = re.match(r"\s*([0-9.]+)%\s+\[(.)\]\s+(.*\S)", line)
            if match:
                kind, name = match.group(2), match.group(3)
                found[name if kind != "k" else "[k] " + name] += float(match.group(1))
        if not found:
            raise SystemExit("perf took no samples; may it be used here? "
                             "(kernel.perf_event_paranoid)")
        return found


def decode(daemon: Daemon, streams: int, tokens: int) -> dict[str, float]:
    start = daemon.counters()[ROWS]
    load = daemon.load(streams, streams, PROMPT_TOKENS, tokens)
    prompt_rows = streams * PROMPT_TOKENS
    margin = streams * (8 + prompt_rows // 256)
    wait_for(daemon, load, lambda c: c[ROWS] - start - prompt_rows >= margin)
    samples = Samples(daemon)
    wait_for(daemon, load, lambda c: c[ROWS] - start - prompt_rows >= streams * tokens - margin)
    found = samples.end()
    load.wait()
    return found


def prefill(daemon: Daemon) -> dict[str, float]:
    load = daemon.load(1, 2 * LONG_PROMPTS, LONG_PROMPT_TOKENS, 1)
    time.sleep(0.3)  # Until it has made its prompts.
    samples = Samples(daemon)
    load.wait()
    return samples.end()


def print_table(cases: dict[str, dict[str, float]], above: float) -> None:
    head = f"{'part, % of processor time':42}" + "".join(f"{case:>13}" for case in cases)
    print(head)
    for part in [part for part, _ in PARTS] + [REST]:
        sums = [sum(value for name, value in found.items() if part_of(name) == part)
                for found in cases.values()]
        print(f"{part:42}" + "".join(f"{value:13.1f}" for value in sums))
    print(f"functions above {above:g} %:")
    names = {name for found in cases.values() for name, value in found.items() if value > above}
    for name in sorted(names, key=lambda n: -max(found.get(n, 0) for found in cases.values())):
        values = "".join(f"{found.get(name, 0):7.1f}" for found in cases.values())
        print(f"{values}  {part_of(name)}: {short(name)}")


def short(name: str) -> str:
    plain = name.replace("afd::", "").replace("(anonymous namespace)::", "")
    return plain if len(plain) <= 100 else plain[:97] + "..."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, action="append", required=True)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--topology", type=lambda text: text.split(","),
                        default=list(TOPOLOGIES))
    parser.add_argument("--streams", type=lambda text: [int(word) for word in text.split(",")],
                        default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=256, help="of each stream")
    parser.add_argument("--above", type=float, default=3)
    parser.add_argument("--flag", action="append", default=[], help="one more for afdd: --flag=...")
    arguments = parser.parse_args()
    for model in arguments.model:
        for topology in arguments.topology:
            flags = [*TOPOLOGIES[topology], "--micro-batches", "1", "--micro-batch-size",
                     str(LONG_PROMPT_TOKENS)]
            with tempfile.TemporaryDirectory(prefix="afd-bench-") as runtime:
                daemon = Daemon(arguments, model, flags, runtime)
                try:
                    cases = {f"{streams} stream{'s' * (streams > 1)}":
                             decode(daemon, streams, arguments.tokens * (4 if streams == 1 else 1))
                             for streams in arguments.streams}
                    cases["prefill 512"] = prefill(daemon)
                finally:
                    daemon.stop()
            print(f"{model.name} ({Weights.read(model).dtype}), {topology}")
            print_table(cases, arguments.above)


if __name__ == "__main__":
    main()
