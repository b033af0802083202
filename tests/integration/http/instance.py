# SPDX-License-Identifier: Apache-2.0
"""A real afdd that serves HTTP on a port of its own, for tests that talk to it as clients do."""

import contextlib
import http.client
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

START_SECONDS = 60
_numbers = itertools.count()


class Instance:
    """Starts afdd with the demo model, two attention workers and one FFN worker; use as `with`."""

    def __init__(self, bin_dir: pathlib.Path, *flags: str, environment: dict | None = None) -> None:
        self.bin = bin_dir
        self.flags = flags
        self.runtime = tempfile.TemporaryDirectory(prefix="afd-http-")
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": self.runtime.name,
                            "XDG_CACHE_HOME": self.runtime.name, **(environment or {})}
        # Of its own: segments of one name belong to one afdd of a user, wherever its sockets are.
        self.name = f"http_{os.getpid()}_{next(_numbers)}"
        self.host, self.port = "127.0.0.1", 0

    def __enter__(self) -> "Instance":
        self.log = open(pathlib.Path(self.runtime.name) / "afdd.log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [self.bin / "afdd", "--demo", "--instance", self.name, "--http", "127.0.0.1:0",
             *self.flags],
            env=self.environment, stderr=self.log, stdout=self.log)
        deadline = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            found = re.search(r"ready in .* http://127\.0\.0\.1:(\d+)", self.said())
            if found:
                self.port = int(found.group(1))
                return self
            time.sleep(0.05)
        self.process.kill()
        raise RuntimeError("afdd did not become ready:\n" + self.said())

    def __exit__(self, kind, value, trace) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        end = "ended with code"
        try:
            self.process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            end = f"did not end within {START_SECONDS} s of SIGTERM, and so with code"
        said = self.said()
        self.log.close()
        self.runtime.cleanup()
        if kind is not None:
            print(said)
        elif self.process.returncode < 0:
            raise RuntimeError(f"afdd {end} {self.process.returncode}:\n{said}")

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def said(self) -> str:
        return pathlib.Path(self.log.name).read_text(encoding="utf-8")

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=START_SECONDS)

    def ask(self, method: str, path: str, body: object = None,
            headers: dict | None = None) -> tuple[int, dict, bytes]:
        """One request over a connection of its own: status, headers in lower case, body."""
        connection = self.connect()
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data,
                           {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        result = (answer.status, {name.lower(): value for name, value in answer.getheaders()},
                  answer.read())
        connection.close()
        return result

    def pids_of(self, role: str) -> list[int]:
        return [worker["pid"] for worker in self.ctl("status")["workers"]
                if worker["role"] == role]

    def stream_through_kills(self, path: str, body: dict) -> bytes:
        """The answer to a request that streams, amid which the attention workers are killed. Needs
        --stop-timeout-ms 0 and --hang-timeout-ms 0."""
        experts = self.pids_of("ffn")
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            killed = self.pids_of("attention")
            connection = self.connect()
            connection.request("POST", path, json.dumps({**body, "stream": True}),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            received = answer.read1(65536)
            with stopped(experts):
                is_amid = self.ctl("status").get("num_running", 0) > 0
                for pid in killed if is_amid else []:
                    os.kill(pid, signal.SIGKILL)
            received += answer.read()
            connection.close()
            if is_amid:
                return received
        raise RuntimeError("each stream was whole before its workers could be killed")

    def num_replays(self) -> float:
        text = self.ask("GET", "/metrics")[2].decode()
        return sum(float(line.split()[-1]) for line in text.splitlines()
                   if line.startswith("afd_replays_total"))

    def ctl(self, *arguments: str) -> dict:
        done = subprocess.run([self.bin / "afdctl", "--json", "--instance", self.name, *arguments],
                              env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"afdctl {arguments[0]}: {done.stderr.strip()}")
        return json.loads(done.stdout)


@contextlib.contextmanager
def stopped(pids: list[int]):
    """With the FFN workers of an instance no step is completed meanwhile. They are asked for before:
    the demo model generates its whole context in 150 ms, in which a busy machine starts no program.
    What ends meanwhile is not missed.
    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        # A step that has just come back from them may be a request's last.
        time.sleep(0.15)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def events_of(body: bytes) -> list[str]:
    """The data of each server-sent event; comments and ids are left out."""
    text = body.decode()  # Every event, and so the whole, is UTF-8.
    assert text.endswith("\n\n"), text[-100:]
    return [re.sub(r"^(id: \d+\n)?data: ", "", block) for block in text.split("\n\n")
            if block and not block.startswith(":")]
