#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients over HTTP while another afdd takes the place of the one that serves.

    upgrade_test.py BIN_DIR [unittest arguments]

Goal: a client sees one address, connections that go on, and the streams that it has asked for.
Method: streams over connections that are kept alive, one after the other on each, while afdctl
upgrades again and again. Oracle: the undisturbed stream of the same request.
"""

import concurrent.futures
import json
import os
import pathlib
import socket
import sys
import threading
import time
import unittest
from collections.abc import Callable

from instance import START_SECONDS, Instance, events_of, stopped

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
LONG = {"prompt": "It was a fine morning", "max_tokens": 300, "ignore_eos": True, "seed": 7,
        "temperature": 0.8, "stream": True, "logprobs": 1}
NUM_CLIENTS = 4
NUM_UPGRADES = 4


def parts_of(body: bytes) -> list:
    """What a client keeps of a stream: texts, log probabilities, the end's reason."""
    events = events_of(body)
    assert events[-1] == "[DONE]", events[-1]
    return [choice for event in events[:-1] for choice in json.loads(event)["choices"]]


class UpgradeTest(unittest.TestCase):
    def setUp(self) -> None:
        self.instance = self.enterContext(Instance(BIN, "--stop-timeout-ms", "0",
                                                   "--hang-timeout-ms", "0",
                                                   "--drain-timeout-ms", "6000"))

    def tearDown(self) -> None:
        # Its process is none of this test's.
        pid = self.instance.ctl("status")["pid"]
        self.instance.ctl("stop", "--no-wait")
        deadline = time.monotonic() + START_SECONDS
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            if pid == self.instance.process.pid:
                self.instance.process.poll()
            time.sleep(0.02)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not holds():
            self.assertLess(time.monotonic(), deadline, f"{what}: {self.instance.said()}")
            time.sleep(0.02)

    def upgrade_said(self) -> str:
        """What the status says of the old one, which has not ended."""
        self.assertIsNone(self.instance.process.poll(), self.instance.said())
        return self.instance.ctl("status")["upgrade"]

    def test_connections_go_on_and_streams_are_whole(self) -> None:
        undisturbed = parts_of(self.instance.ask("POST", "/v1/completions", LONG)[2])
        is_ending = threading.Event()
        bodies: list[bytes] = []
        num_connections = []

        def stream() -> None:
            connection = self.instance.connect()
            connection.connect()
            local = connection.sock.getsockname()
            while not is_ending.is_set():
                connection.request("POST", "/v1/completions", json.dumps(LONG),
                                   {"Content-Type": "application/json"})
                answer = connection.getresponse()
                body = answer.read()
                bodies.append(body if answer.status == 200 else b"status %d" % answer.status)
                # http.client would connect anew without a word.
                if connection.sock is None or connection.sock.getsockname() != local:
                    num_connections.append(local)
                    return
            connection.close()

        pids = {self.instance.ctl("status")["pid"]}
        with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
            clients = [pool.submit(stream) for _ in range(NUM_CLIENTS)]
            try:
                for _ in range(NUM_UPGRADES):
                    upgraded = self.instance.ctl("upgrade")
                    self.assertEqual(upgraded["state"], "upgraded")
                    self.assertIn(upgraded["old_pid"], pids)
                    self.assertNotIn(upgraded["pid"], pids)
                    pids.add(upgraded["pid"])
                    self.assertEqual(self.instance.ask("GET", "/ready")[0], 200)
                    self.wait_until("the old one ends",
                                    lambda: not self.instance.ctl("status")["upgrade"])
            finally:
                is_ending.set()
            for client in clients:
                client.result()
        self.assertEqual(num_connections, [], "connections that were closed")
        self.assertGreater(len(bodies), NUM_CLIENTS)
        for body in bodies:
            self.assertEqual(parts_of(body), undisturbed)

    def test_who_does_not_read_the_last_answer_does_not_keep_the_old_one(self) -> None:
        body = json.dumps({**LONG, "stream": False, "max_tokens": 900, "n": 16, "logprobs": 20})
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((self.instance.host, self.instance.port))
            deaf.sendall(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                          "Connection: close\r\nContent-Type: application/json\r\n"
                          f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
            self.wait_until("all is generated",
                            lambda: self.instance.ctl("status")["num_finished"] >= 16)
            self.instance.ctl("upgrade")
            # That of afdctl leaves at once.
            self.wait_until("the deaf one is left",
                            lambda: "0 requests and 1 connections" in self.upgrade_said())
            self.instance.process.wait(timeout=START_SECONDS)
            self.assertIn("whose last answer nobody reads", self.instance.said())

    def test_a_stream_is_resumed_with_the_new_one(self) -> None:
        asked = {**LONG, "resumable_ms": 60_000}
        connection = self.instance.connect()
        ffn = self.instance.pids_of("ffn")
        with stopped(ffn):
            connection.request("POST", "/v1/completions", json.dumps(asked),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            name = answer.getheader("X-Afd-Resume")
            self.instance.ctl("upgrade")
            # A moment behind the answer to who asked for it.
            self.wait_until("the stream is left", lambda: "1 requests" in self.upgrade_said())
            status, _, body = self.instance.ask("GET", f"/v1/resume/{name}")
            self.assertEqual(status, 503, body)
            self.assertIn(b"still runs with the afdd before this one", body)
        whole = answer.read()
        self.wait_until("the old one ends", lambda: not self.instance.ctl("status")["upgrade"])
        status, _, again = self.instance.ask("GET", f"/v1/resume/{name}")
        self.assertEqual(status, 200)
        self.assertEqual(events_of(again), events_of(whole))


if __name__ == "__main__":
    unittest.main()
