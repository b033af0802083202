#!/usr/bin/env python3
"""What a prefix that is cached costs the first token.

    bench_prefix.py [--bin build/release/bin] [--model DIRECTORY] [--requests 64] [--prefix 512]
                    [--new 16,64,128] [--flags "..."]

afdd with the demo model, one attention and one FFN worker. For each number of new tokens, requests
over the socket, one at a time and all at once, of three kinds in turn:

    alone     the new tokens alone
    cached    behind a prefix that all have in common, and that the cache has
    computed  behind a prefix that nobody had before

A line for each: the first token by afdd's clock (from acceptance), median of the requests, best
round, and the ratio to "alone". Rows are those that the attention worker computed, which shows that
a cached prefix is not computed again. The time in its phase `attention` is of all requests: what it
grows by is attention over the cached rows, which remains, because every new row looks at them.
"""
import argparse
import pathlib
import random
import re
import socket
import statistics
import urllib.request

from bench_http import field, frames, varint
from running_afdd import RunningAfdd


class Instance(RunningAfdd):
    def __init__(self, arguments) -> None:
        model = ["--model", arguments.model] if arguments.model else ["--demo"]
        super().__init__(arguments.bin,
                         [*model, "--attention-workers", "1", "--max-sequences", "256",
                          "--kv-tokens", "131072", *arguments.flags.split()])

    def counts(self) -> tuple[int, float]:
        """Rows and seconds of the attention worker so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            text = answer.read().decode()
        rows = re.search(r'^afd_rows_total\{.*role="attention".*\} (\S+)', text, re.MULTILINE)
        busy = re.search(r'^afd_busy_seconds_total\{.*role="attention".*phase="attention".*\} (\S+)',
                         text, re.MULTILINE)
        return int(float(rows.group(1))), float(busy.group(1)) if busy else 0.0


def request(request_id: int, ids: list[int]) -> bytes:
    generate = (field(2, field(1, b"".join(map(varint, ids)))) + field(3, 1)
                + field(4, field(4, 1)) + field(8, 1))
    body = field(1, request_id) + field(2, generate)
    return len(body).to_bytes(4, "little") + body


def first_token_us(body: bytes) -> int | None:
    """Of a Response with Finished, by its field 5."""
    at, inside = 0, body
    while at < len(inside):
        key, at = read_varint(inside, at)
        if key & 7 == 0:
            value, at = read_varint(inside, at)
            if inside is not body and key >> 3 == 5:
                return value
            continue
        size, at = read_varint(inside, at)
        if inside is body and key >> 3 == 4:
            inside, at = body[at:at + size], 0
            continue
        if inside is body and key >> 3 == 5:
            raise RuntimeError(body)
        at += size
    return None


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def run(instance: Instance, prompts: list[list[int]], at_once: bool) -> float:
    """Median time to the first token in ms."""
    times = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(instance.socket_path)
        batches = [prompts] if at_once else [[prompt] for prompt in prompts]
        for batch in batches:
            connection.sendall(b"".join(request(i + 1, ids) for i, ids in enumerate(batch)))
            received, done = b"", []
            while len(done) < len(batch):
                received += connection.recv(1 << 18)
                whole = frames(received)
                received = received[sum(4 + len(body) for body in whole):]
                done += [us for us in map(first_token_us, whole) if us is not None]
            times += done
    return statistics.median(times) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--model")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prefix", type=int, default=512)
    parser.add_argument("--new", default="16,64,128")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flags", default="")
    arguments = parser.parse_args()
    instance = Instance(arguments)
    draw = random.Random(1)

    def ids(count: int) -> list[int]:
        return [draw.randrange(2, 2000) for _ in range(count)]

    prefix = ids(arguments.prefix)
    run(instance, [prefix + ids(8)], False)
    for new in map(int, arguments.new.split(",")):
        for at_once in (False, True):
            medians: dict[str, list[float]] = {}
            rows: dict[str, int] = {}
            busy: dict[str, float] = {}
            for _ in range(arguments.rounds):
                for kind, begin in (("alone", lambda: []), ("cached", lambda: prefix),
                                    ("computed", lambda: ids(arguments.prefix))):
                    prompts = [begin() + ids(new) for _ in range(arguments.requests)]
                    before = instance.counts()
                    medians.setdefault(kind, []).append(run(instance, prompts, at_once))
                    after = instance.counts()
                    rows[kind] = after[0] - before[0]
                    busy[kind] = min(busy.get(kind, 1e9), after[1] - before[1])
            alone = min(medians["alone"])
            for kind, values in medians.items():
                print(f"{new:4} new  {'at once' if at_once else 'one by one':10}  {kind:8} "
                      f"{min(values):8.3f} ms  x {min(values) / alone:5.2f}  {rows[kind]:6} rows  "
                      f"attention {busy[kind] * 1e3:8.2f} ms", flush=True)
    instance.stop()


if __name__ == "__main__":
    main()
