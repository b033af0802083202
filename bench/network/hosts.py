"""Hosts: an instance of an attention worker here and an FFN worker, here or behind a wire."""
import contextlib
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

from wire import NEAR, Link

PATIENCE_S = 120
PROMPTS_OF_AN_INSTANCE = 5
PORT = 7499


def numbers(text: str) -> list[int]:
    """Of an option: '1,2'; none of an empty one."""
    return [int(each) for each in text.split(",")] if text else []


def on_core(number: int) -> list[str]:
    """A command that runs what follows it on that one of the cores that this program may use."""
    return ["taskset", "-c", str(sorted(os.sched_getaffinity(0))[number])]


class Hosts:
    """Lives until the end of `with`.

    wire: behind which the FFN worker is, on a host "b" of its own; None: it is here, too. flags:
    more of them for the afdd that leads. Each host has a core of its own, one host has both: what
    runs on a host is put on its cores, of which the two would take the same.
    """

    def __init__(self, bin_dir: pathlib.Path, model: pathlib.Path, wire: Link | None,
                 flags: list[str]) -> None:
        self.bin_dir, self.model, self.wire, self.flags = bin_dir, model, wire, flags
        self.ends = contextlib.ExitStack()

    def __enter__(self) -> "Hosts":
        """Raises RuntimeError: the instance does not start."""
        with contextlib.ExitStack() as ends:
            self.root = pathlib.Path(
                ends.enter_context(tempfile.TemporaryDirectory(prefix="afd-bench-")))
            flags = ["--attention-workers", "1", "--ffn-workers", "1", *self.flags]
            before = [] if self.wire is None else on_core(0)
            leader = self.start(ends, "leader", before, [*flags, *self.cluster_flags()])
            if self.wire is not None:
                self.start(ends, "host", [*self.wire.far, *on_core(1)],
                           [*self.over_wire(), "--join", f"{NEAR}:{PORT}", "--host-name", "b"])
            self.wait_ready(leader)
            self.ends = ends.pop_all()
        return self

    def over_wire(self) -> list[object]:
        return ["--transport", "ucx", "--ucx-devices", self.wire.device, "--cluster-dir",
                self.root / "certificates"]

    def cluster_flags(self) -> list[object]:
        if self.wire is None:
            return []
        subprocess.run([self.bin_dir / "afdctl", "cluster", "init", self.root / "certificates",
                        "--host", "b"], check=True, stdout=subprocess.DEVNULL)
        return [*self.over_wire(), "--ucx-host", NEAR, "--cluster-listen", f"{NEAR}:{PORT}",
                "--ffn-hosts", "b"]

    def wait_ready(self, leader: subprocess.Popen) -> None:
        log = self.root / "leader" / "log"
        deadline = time.monotonic() + PATIENCE_S
        while "ready in " not in log.read_text():
            if time.monotonic() > deadline or leader.poll() is not None:
                raise RuntimeError(f"the instance does not start:\n{log.read_text()}")
            time.sleep(0.05)

    def start(self, ends: contextlib.ExitStack, name: str, before: list[str],
              flags: list[object]) -> subprocess.Popen:
        directory = self.root / name
        directory.mkdir()
        with open(directory / "log", "w") as log:
            # Two hosts of one machine: each has a name for its segments.
            process = subprocess.Popen(
                [*before, self.bin_dir / "afdd", "--instance", f"bench_{name}", "--model",
                 self.model, *flags], env=self.environment(name), stderr=log)
        ends.callback(process.wait, PATIENCE_S)
        ends.callback(process.terminate)
        return process

    def environment(self, name: str) -> dict[str, str]:
        return {**os.environ, "XDG_RUNTIME_DIR": str(self.root / name),
                "XDG_CACHE_HOME": str(self.root / name)}

    def load(self, concurrency: int, requests: int, tokens: int) -> dict:
        """What afd-load says of requests that come one behind the other in so many places."""
        done = subprocess.run(
            [self.bin_dir / "afd-load", "--instance", "bench_leader", "--concurrency",
             str(concurrency), "--requests", str(requests), "--max-tokens", str(tokens),
             "--ignore-eos", "--warmup", str(concurrency), "--out", self.root / "result", "--json"],
            env=self.environment("leader"), check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"afd-load failed: {done.stderr}")
        return json.loads(done.stdout)["levels"][0]

    def prompts_s(self, tokens: int) -> list[float]:
        """Until afdd has the first token, of a few random prompts one behind the other."""
        vocabulary = json.loads((self.model / "config.json").read_text())["vocab_size"]
        draw = random.Random(tokens)
        return [self.first_token_s([draw.randrange(3, vocabulary) for _ in range(tokens)])
                for _ in range(PROMPTS_OF_AN_INSTANCE)]

    def first_token_s(self, prompt: list[int]) -> float:
        """Until afdd has the first token behind a prompt."""
        done = subprocess.run(
            [self.bin_dir / "afdctl", "--instance", "bench_leader", "--json", "generate",
             "--prompt-ids", ",".join(map(str, prompt)), "--max-tokens", "1", "--ignore-eos"],
            env=self.environment("leader"), check=True, capture_output=True, text=True)
        return json.loads(done.stdout)["first_token_us"] / 1e6

    def bytes_per_token(self) -> float:
        """On the link, both ways, as the status has it, of requests that are over."""
        # A worker says once a second what its links have carried (daemon/worker/link_reports.h).
        time.sleep(1.5)
        done = subprocess.run(
            [self.bin_dir / "afdctl", "--instance", "bench_leader", "status", "--json"],
            env=self.environment("leader"), check=True, capture_output=True, text=True)
        worker, = (each for each in json.loads(done.stdout)["workers"]
                   if each["role"] == "attention")
        link, = worker["links"]
        return (link["bytes_sent"] + link["bytes_received"]) / worker["num_positions"]

    def __exit__(self, *unused: object) -> None:
        self.ends.close()
