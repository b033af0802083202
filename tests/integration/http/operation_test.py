#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How an instance that serves HTTP begins and ends.

    operation_test.py BIN_DIR [unittest arguments]

Goal: who stops it loses no stream in time and hears of what is cut; who starts it wrong hears what
to do. Oracle: the streams to their end, the exit codes, the words.
"""

import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest

from instance import Instance, events_of, stopped

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
PROMPT = "It was a fine morning, and the young lady"
PATIENCE_S = 60


class OperationTest(unittest.TestCase):
    """How an instance begins and ends, and who may use it."""

    def test_sigterm_lets_streams_finish(self) -> None:
        """The experts rest while afdd is asked, so that it still drains."""
        with Instance(BIN, "--stop-timeout-ms", "0", "--hang-timeout-ms", "0",
                      "--drain-timeout-ms", "120000") as instance:
            experts = instance.pids_of("ffn")
            deadline = time.monotonic() + PATIENCE_S
            has_ended = False
            while not has_ended:
                streams = [self.begin_stream(instance) for _ in range(3)]
                with stopped(experts):
                    # Unless the streams are quicker.
                    if instance.ctl("status")["num_running"] > 0:
                        self.drain(instance)
                        has_ended = True
                for answer, received in streams:
                    self.assertEqual(len(events_of(received + answer.read())), 902)
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual(instance.process.wait(PATIENCE_S), 0)

    def begin_stream(self, instance: Instance, **fields) -> tuple[http.client.HTTPResponse, bytes]:
        connection = instance.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True, **fields}))
        answer = connection.getresponse()
        return answer, answer.read1(10)

    def drain(self, instance: Instance) -> None:
        instance.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        while instance.ask("GET", "/ready")[0] == 200:
            self.assertLess(time.monotonic(), deadline, "it does not drain")
        status, _, ready = instance.ask("GET", "/ready")
        self.assertEqual((status, json.loads(ready)["status"]), (503, "draining"))
        self.assertEqual(instance.ask("GET", "/live")[0], 200)
        refused, headers, _ = instance.ask("POST", "/v1/completions", {"prompt": "a"})
        self.assertEqual(refused, 503)
        self.assertIn("retry-after", headers)

    def test_drain_that_takes_too_long_ends_streams_with_an_error(self) -> None:
        """The experts rest, so that it takes too long."""
        with Instance(BIN, "--stop-timeout-ms", "0", "--hang-timeout-ms", "0",
                      "--drain-timeout-ms", "1") as instance:
            experts = instance.pids_of("ffn")
            deadline = time.monotonic() + PATIENCE_S
            is_running = False
            while not is_running:
                self.assertLess(time.monotonic(), deadline)
                stream, received = self.begin_stream(instance, n=16)
                with stopped(experts):
                    # Unless the stream is quicker.
                    is_running = instance.ctl("status")["num_running"] > 0
                    if is_running:
                        instance.process.send_signal(signal.SIGTERM)
                        received += stream.read()
                received += stream.read()
            events = events_of(received)
            self.assertEqual(json.loads(events[-2])["error"]["type"], "server_error")
            self.assertEqual(events[-1], "[DONE]")
            self.assertEqual(instance.process.wait(PATIENCE_S), 6)

    def test_keys_come_from_the_environment(self) -> None:
        key = "sk-0123456789abcdef"
        with Instance(BIN, environment={"AFD_API_KEY": key}) as instance:
            self.assertEqual(instance.ask("GET", "/v1/models")[0], 401)
            self.assertEqual(instance.ask("GET", "/ready")[0], 200)
            self.assertEqual(
                instance.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})[0],
                200)
            self.assertNotIn(key, instance.said())

    def refusal(self, *flags: str) -> str:
        done = subprocess.run([BIN / "afdd", "--demo", "--instance", f"http_{os.getpid()}", *flags],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_start_is_refused_with_what_to_do(self) -> None:
        self.assertIn("there is no API key", self.refusal("--http", "0.0.0.0:0"))
        self.assertIn("must be ADDRESS:PORT", self.refusal("--http", "8000"))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.assertIn(f"port {port} of 127.0.0.1 is taken",
                          self.refusal("--http", f"127.0.0.1:{port}"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
