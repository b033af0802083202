#!/usr/bin/env python3
"""What HTTP costs beside the client socket, and how many connections one afdd bears.

    bench_http.py [--bin build/release/bin] [--streams 8] [--requests 64] [--tokens 200]
                  [--rounds 5] [--many 1000] [--idle 10000]

afdd --demo on all cores. Three parts, each a line or two of figures:

* CPU of the afdd process (not its workers) for each token, streamed over HTTP and over the socket
  in turn, with the same prompts, seeds and number of streams, by the same client of raw sockets.
* Time to the first token of a prompt of 10 tokens, one request at a time, in turn.
* `--many` concurrent streams of HTTP; then `--idle` connections that have asked once and stay. How
  many failed, and what afdd's memory grew by for each (the peak of VmRSS meanwhile, and Pss).

The client is Python and shares the cores with what it measures: CPU times do not care, times to the
first token do, for both doors alike.
"""
import argparse
import json
import pathlib
import re
import resource
import selectors
import socket
import statistics
import time

from running_afdd import PATIENCE_S, RunningAfdd

PROMPT = "It was a fine morning, and the young lady"
PROMPT_IDS = [0, 1193, 335, 260, 1811, 300, 301, 302, 303, 304]


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


class SocketDoor:
    """client.proto, as far as a generation needs it."""

    def __init__(self, instance: "Instance") -> None:
        self.path = instance.socket_path

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.path)
        return connection

    def request(self, seed: int, tokens: int) -> bytes:
        sampling = field(4, seed)
        generate = (field(2, field(1, b"".join(map(varint, PROMPT_IDS)))) + field(3, tokens)
                    + field(4, sampling) + field(8, 1))
        body = field(1, 1) + field(2, generate)
        return len(body).to_bytes(4, "little") + body

    @staticmethod
    def num_tokens(received: bytes) -> int:
        return sum(body[2:3] == b"\x1a" and b"\x28\x01" in body for body in frames(received))

    @staticmethod
    def is_over(received: bytes) -> bool:
        # Finished is field 4, an Error field 5, and each is the last.
        last = frames(received)[-1:]
        return bool(last) and last[0][2:3] in (b"\x22", b"\x2a")


def frames(received: bytes) -> list[bytes]:
    bodies, at = [], 0
    while at + 4 <= len(received):
        size = int.from_bytes(received[at:at + 4], "little")
        if at + 4 + size > len(received):
            break
        bodies.append(received[at + 4:at + 4 + size])
        at += 4 + size
    return bodies


class HttpDoor:
    def __init__(self, instance: "Instance") -> None:
        self.port = instance.port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def request(self, seed: int, tokens: int) -> bytes:
        body = json.dumps({"prompt": PROMPT_IDS, "max_tokens": tokens, "seed": seed,
                           "temperature": 0, "ignore_eos": True, "stream": True}).encode()
        return (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                + str(len(body)).encode() + b"\r\n\r\n" + body)

    @staticmethod
    def num_tokens(received: bytes) -> int:
        return received.count(b'"finish_reason":null')

    @staticmethod
    def is_over(received: bytes) -> bool:
        return (received.endswith(b"0\r\n\r\n")
                or received.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")))


class Instance(RunningAfdd):
    def __init__(self, bin_dir: pathlib.Path, connections: int, streams: int) -> None:
        super().__init__(bin_dir, ["--demo", "--connections-max", str(connections),
                                   "--max-queue", str(2 * streams)])

    def cpu_s(self) -> float:
        """Of all its threads so far."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def pss_kib(self) -> int:
        rollup = pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return int(re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE).group(1))

    def peak_kib(self) -> int:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmHWM:\s+(\d+)", status, re.MULTILINE).group(1))


def run_streams(door, streams: int, requests: int, tokens: int) -> tuple[int, int]:
    """A closed loop; the number of tokens that came, and of requests that did not get all."""
    selector = selectors.DefaultSelector()
    todo = iter(range(requests))
    num_tokens = num_failed = 0

    def begin(connection: socket.socket) -> bool:
        seed = next(todo, None)
        if seed is None:
            connection.close()
            return False
        connection.sendall(door.request(seed, tokens))
        selector.register(connection, selectors.EVENT_READ, bytearray())
        return True

    num_open = sum(begin(door.connect()) for _ in range(min(streams, requests)))
    while num_open > 0:
        ready = selector.select(PATIENCE_S)
        if not ready:
            raise RuntimeError(f"{num_open} streams are silent")
        for key, _ in ready:
            got = key.fileobj.recv(1 << 18)
            key.data.extend(got)
            if got and not door.is_over(bytes(key.data[-4096:]) if isinstance(door, HttpDoor)
                                        else bytes(key.data)):
                continue
            selector.unregister(key.fileobj)
            came = door.num_tokens(bytes(key.data))
            num_tokens += came
            num_failed += came != tokens
            num_open -= 1
            num_open += begin(key.fileobj)
    return num_tokens, num_failed


def cpu_per_token_us(instance: Instance, door, arguments) -> float:
    before = instance.cpu_s()
    num_tokens, num_failed = run_streams(
        door, arguments.streams, arguments.requests, arguments.tokens)
    if num_failed:
        raise RuntimeError(f"{num_failed} requests failed")
    return (instance.cpu_s() - before) / num_tokens * 1e6


def first_token_ms(door, count: int) -> list[float]:
    times = []
    with door.connect() as connection:
        for seed in range(count):
            start = time.perf_counter()
            connection.sendall(door.request(seed, 2))
            received = b""
            first = None
            while not door.is_over(received):
                received += connection.recv(65536)
                if first is None and door.num_tokens(received) > 0:
                    first = (time.perf_counter() - start) * 1e3
            times.append(first)
    return times


def measure_idle(instance: Instance, count: int) -> str:
    before = instance.pss_kib()
    connections = []
    num_failed = 0
    ask = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", instance.port))
        connection.sendall(ask)
        num_failed += not connection.recv(4096).startswith(b"HTTP/1.1 200")
        connections.append(connection)
    grown = instance.pss_kib() - before
    cpu, start = instance.cpu_s(), time.monotonic()
    time.sleep(1)
    cpu = (instance.cpu_s() - cpu) / (time.monotonic() - start)
    for connection in connections:
        connection.sendall(ask)
    num_failed += sum(not connection.recv(4096).startswith(b"HTTP/1.1 200")
                      for connection in connections)
    for connection in connections:
        connection.close()
    return (f"{count} idle connections: {num_failed} failed, "
            f"{grown * 1024 / count:.0f} bytes each, {cpu * 100:.2f} % of a core")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default="build/release/bin")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=10000)
    arguments = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    instance = Instance(arguments.bin, max(arguments.idle, arguments.many) + 100, arguments.many)
    doors = {"http": HttpDoor(instance), "socket": SocketDoor(instance)}
    cpu = {name: [] for name in doors}
    first = {name: [] for name in doors}
    for _ in range(arguments.rounds):
        for name, door in doors.items():
            cpu[name].append(cpu_per_token_us(instance, door, arguments))
            first[name] += first_token_ms(door, 40)
    for name in doors:
        print(f"{name:6}  CPU of afdd {statistics.median(cpu[name]):6.2f} us a token "
              f"({min(cpu[name]):.2f} to {max(cpu[name]):.2f})   first token "
              f"{statistics.median(first[name]):.3f} ms")
    before, before_pss, start = instance.peak_kib(), instance.pss_kib(), time.monotonic()
    num_tokens, num_failed = run_streams(doors["http"], arguments.many, arguments.many, 30)
    print(f"{arguments.many} streams at once: {num_failed} failed, {num_tokens} tokens in "
          f"{time.monotonic() - start:.1f} s, "
          f"at most {(instance.peak_kib() - before) * 1024 / arguments.many:.0f} bytes each, of "
          f"which {(instance.pss_kib() - before_pss) * 1024 / arguments.many:.0f} stay")
    print(measure_idle(instance, arguments.idle))
    instance.stop()


if __name__ == "__main__":
    main()
