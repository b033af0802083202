#!/usr/bin/env python3
"""How long a worker lives on after its run_flag became 0.

    bench_run_flag.py [--bin build/release/bin] [--repeat 30]

Starts `afdd --demo` with one FFN worker and keeps a request running. Then, again and again: stores 0
in the run_flag of the FFN worker's ScheduleContext, as anyone who may write the segment can, waits on
the process, and lets it come back with `afdctl context --set-run-flag 1`. Two times count from the
store: to the last round that its loop acknowledged (looked at every 0.2 ms), and to the end of the
process, which has reported so, unmapped its memory and exited. A busy loop looks at the word before
every turn, afdd looks every 7 ms.
"""
import argparse
import json
import mmap
import os
import pathlib
import select
import statistics
import struct
import subprocess
import time

INSTANCE = "bench_run_flag"
# docs/wire.md. The acknowledged rounds of the first session: a line, whatever M is.
RUN_FLAG_OFFSET = 128
ACKNOWLEDGED = slice(2048, 2048 + 128)
LOOK_SECONDS = 0.0002
START_SECONDS = 30


def ffn_worker(ctl: list[str]) -> dict:
    status = json.loads(subprocess.run([*ctl, "--json", "status"], check=True, capture_output=True,
                                       text=True).stdout)
    return next(worker for worker in status["workers"] if worker["role"] == "ffn")


def wait_until_ready(ctl: list[str]) -> int:
    """The worker's pid, once it is ready."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            worker = ffn_worker(ctl)
            if worker["state"] == "ready":
                return worker["pid"]
        except subprocess.CalledProcessError:
            pass
        time.sleep(0.05)
    raise SystemExit("bench_run_flag: the FFN worker does not become ready")


def milliseconds_to_end(context: mmap.mmap, pid: int) -> tuple[float, float]:
    """To the last acknowledged round, and to the end of the process."""
    process = os.pidfd_open(pid)
    begin = last_turn = time.perf_counter()
    context[RUN_FLAG_OFFSET:RUN_FLAG_OFFSET + 4] = struct.pack("<i", 0)
    acknowledged = context[ACKNOWLEDGED]
    while not select.select([process], [], [], LOOK_SECONDS)[0]:
        now = time.perf_counter()
        if now - begin > 5:
            raise SystemExit("bench_run_flag: the worker did not end within 5 s")
        if context[ACKNOWLEDGED] != acknowledged:
            acknowledged, last_turn = context[ACKNOWLEDGED], now
    end = time.perf_counter()
    os.close(process)
    return (last_turn - begin) * 1e3, (end - begin) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--repeat", type=int, default=30)
    args = parser.parse_args()
    ctl = [str(args.bin / "afdctl"), "--instance", INSTANCE]
    daemon = subprocess.Popen(
        [args.bin / "afdd", "--demo", "--instance", INSTANCE, "--attention-workers", "1",
         "--log-level", "off"], stderr=subprocess.DEVNULL)
    try:
        times = []
        for _ in range(args.repeat):
            pid = wait_until_ready(ctl)
            name = next(path for path in pathlib.Path("/dev/shm").iterdir()
                        if INSTANCE in path.name and path.name.endswith("-ffn0-control"))
            request = subprocess.Popen([*ctl, "generate", "Once upon a time", "--ignore-eos",
                                        "--max-tokens", "400"], stdout=subprocess.DEVNULL)
            time.sleep(0.05)
            with name.open("r+b") as file, mmap.mmap(file.fileno(), 0) as context:
                times.append(milliseconds_to_end(context, pid))
            subprocess.run([*ctl, "context", "--worker", "ffn0", "--set-run-flag", "1"], check=True,
                           stdout=subprocess.DEVNULL)
            request.wait()
        for what, of in zip(("last round", "end of the process"), zip(*times)):
            print(f"run_flag = 0 to the {what}, {args.repeat} times: median "
                  f"{statistics.median(of):.1f} ms, largest {max(of):.1f} ms")
    finally:
        daemon.terminate()
        daemon.wait()


if __name__ == "__main__":
    main()
