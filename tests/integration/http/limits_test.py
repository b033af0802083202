#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a request may not take, against a real afdd.

    limits_test.py BIN_DIR [unittest arguments]

Goal: the bounds of a request (time, queue, context, what its client leaves unread) hold while it
waits and while it runs, its KV room comes back, and nobody else is touched. Method: stopped FFN
workers hold a request at a known place; clients of both doors. Oracle: status and code of the
answer, and what afdctl says is reserved.
"""

import contextlib
import json
import pathlib
import select
import socket
import subprocess
import sys
import time
import unittest

from instance import Instance, events_of, stopped

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
PROMPT = "It was a fine morning, and the young lady"
PATIENCE_S = 60
LONG = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "seed": 1}


class LimitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        # One request runs, two wait. Nobody replaces what this test stops.
        cls.instance = cls.enterClassContext(Instance(
            BIN, "--attention-workers", "1", "--max-sequences", "1", "--max-queue", "3",
            "--stop-timeout-ms", "0", "--hang-timeout-ms", "0", "--output-buffer-kib", "64"))
        cls.experts = cls.instance.pids_of("ffn")

    def tearDown(self) -> None:
        status = self.wait_for(lambda one: one.get("num_running", 0) == 0)
        self.assertEqual(status.get("num_queued", 0), 0)
        self.assertEqual(self.kv_tokens_used(status), 0)

    @staticmethod
    def kv_tokens_used(status: dict) -> int:
        return sum(worker.get("kv_tokens_used", 0) for worker in status["workers"])

    def wait_for(self, holds) -> dict:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status = self.instance.ctl("status")
            if holds(status):
                return status
            self.assertLess(time.monotonic(), deadline, status)
            time.sleep(0.02)

    def open(self, **fields):
        """A stream, and the first of its bytes."""
        connection = self.instance.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions",
                           json.dumps({**LONG, "stream": True, **fields}))
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        return connection, answer, answer.read1(10)

    @contextlib.contextmanager
    def stream_at_rest(self, **fields):
        """A stream that has begun and not ended, as in open(); no step is completed meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            connection, answer, received = self.open(**fields)
            with stopped(self.experts):
                if self.instance.ctl("status").get("num_running", 0) == 1:
                    yield connection, answer, received
                    return
            # It was whole before they stopped.
            received += answer.read()
            self.assertLess(time.monotonic(), deadline, received[-1000:])

    def ask(self, **fields) -> tuple[int, dict, dict]:
        status, headers, body = self.instance.ask("POST", "/v1/completions", {**LONG, **fields})
        return status, headers, json.loads(body)

    def test_deadline_in_mid_stream_is_an_event_and_frees_the_room(self) -> None:
        with self.stream_at_rest(timeout_ms=2000) as (_, stream, received):
            events = events_of(received + stream.read())
            self.assertEqual(events[-1], "[DONE]")
            error = json.loads(events[-2])["error"]
            self.assertEqual((error["type"], error["code"]), ("server_error", "deadline_exceeded"))
            self.assertIn("longer than its 2000 ms", error["message"])
            self.assertIn("tokens were generated", error["message"])
            self.assertLess(len(events), 902)
            # Although the step that was under way has not come back from the experts.
            self.wait_for(lambda one: self.kv_tokens_used(one) == 0)

    def test_deadline_while_it_waits_has_a_status(self) -> None:
        with self.stream_at_rest() as (_, stream, received):
            status, _, answer = self.ask(timeout_ms=100)
            self.assertEqual((status, answer["error"]["code"]), (504, "deadline_exceeded"))
            self.assertIn("waited in the queue", answer["error"]["message"])
            self.assertEqual(self.instance.ctl("status").get("num_queued", 0), 0)
        self.assertEqual(len(events_of(received + stream.read())), 902, "the other one is whole")

    def test_deadline_before_the_first_token_has_a_status(self) -> None:
        with stopped(self.experts):
            status, _, answer = self.ask(timeout_ms=100, stream=True)
            self.assertEqual((status, answer["error"]["code"]), (504, "deadline_exceeded"))

    def test_deadline_over_the_socket(self) -> None:
        with stopped(self.experts):
            done = subprocess.run(
                [BIN / "afdctl", "--instance", self.instance.name, "generate", PROMPT,
                 "--request-timeout-ms", "100"], env=self.instance.environment,
                capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("longer than its 100 ms", done.stderr)

    def test_deadline_of_the_instance_is_for_all(self) -> None:
        with Instance(BIN, "--request-timeout-ms", "1") as instance:
            status, _, body = instance.ask("POST", "/v1/completions", {**LONG, "timeout_ms": 9000})
            self.assertEqual(status, 504, body)
            self.assertIn("longer than its 1 ms", json.loads(body)["error"]["message"])

    def test_length_that_is_told_is_the_length_that_is_taken(self) -> None:
        with Instance(BIN, "--topology", "colocated", "--kv-tokens", "500") as instance:
            _, _, body = instance.ask("GET", "/v1/models")
            length = json.loads(body)["data"][0]["max_model_len"]
            self.assertEqual(length, 512, "whole blocks")
            _, _, body = instance.ask("POST", "/tokenize", {"prompt": PROMPT})
            self.assertEqual(json.loads(body)["max_model_len"], length)
            for num_tokens, status in ((length - 3, 200), (length - 2, 400)):
                asked = {"prompt": [5, 6, 7], "max_tokens": num_tokens}
                self.assertEqual(instance.ask("POST", "/v1/completions", asked)[0], status)

    def test_choices_that_outgrow_the_cache_are_those_of_a_large_one(self) -> None:
        asked = {**LONG, "n": 4, "max_tokens": 500, "temperature": 0.9}
        answers = []
        for kv_tokens in ("768", "8192"):
            with Instance(BIN, "--topology", "colocated", "--kv-tokens", kv_tokens) as instance:
                status, _, body = instance.ask("POST", "/v1/completions", asked)
                self.assertEqual(status, 200, body)
                answers.append([choice["text"] for choice in json.loads(body)["choices"]])
                self.assertEqual(instance.ctl("status")["num_preemptions"] > 0,
                                 kv_tokens == "768")
        self.assertEqual(*answers)
        self.assertEqual(len(set(answers[0])), 4)

    def test_full_queue_says_when_to_come_again(self) -> None:
        with self.stream_at_rest() as (_, stream, received):
            waiting = []
            for _ in range(3):
                connection = self.instance.connect()
                self.addCleanup(connection.close)
                connection.request("POST", "/v1/completions", json.dumps({**LONG, "max_tokens": 3}))
                waiting.append(connection)
                self.wait_for(lambda one: one.get("num_queued", 0) == len(waiting))
            status, headers, answer = self.ask()
            self.assertEqual((status, answer["error"]["code"]), (429, "queue_full"))
            self.assertEqual(answer["error"]["type"], "rate_limit_error")
            self.assertGreaterEqual(int(headers["retry-after"]), 1)
            self.assertEqual(self.instance.ask("GET", "/ready")[0], 200)
        self.assertEqual(len(events_of(received + stream.read())), 902)
        self.assertEqual([connection.getresponse().status for connection in waiting], [200] * 3)

    def test_context_is_checked_before_the_queue(self) -> None:
        with stopped(self.experts):
            for fields in ({"max_tokens": 5000}, {"prompt": [5] * 5000, "max_tokens": 1}):
                status, _, answer = self.ask(**fields)
                self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]),
                                 (400, "context_length_exceeded", "max_tokens"), answer)

    def test_client_that_leaves_frees_what_runs_and_what_waits(self) -> None:
        with self.stream_at_rest() as (connection, _, _):
            other = self.instance.connect()
            other.request("POST", "/v1/completions", json.dumps(LONG))
            self.wait_for(lambda one: one.get("num_queued", 0) == 1)
            other.close()
            self.wait_for(lambda one: one.get("num_queued", 0) == 0)
            connection.sock.close()
            connection.close()
            # Although it cannot end by itself.
            self.wait_for(lambda one: self.kv_tokens_used(one) == 0)

    def test_slow_reader_stalls_only_itself(self) -> None:
        """More than the kernel's buffers hold: 16 streams of 900 tokens with their alternatives."""
        with Instance(BIN, "--output-buffer-kib", "64") as instance, socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.settimeout(PATIENCE_S)
            slow.connect((instance.host, instance.port))
            body = json.dumps({**LONG, "stream": True, "logprobs": 20, "n": 16}).encode()
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                         + str(len(body)).encode() + b"\r\n\r\n" + body)
            self.assertTrue(select.select([slow], [], [], PATIENCE_S)[0], "no answer")
            for _ in range(5):
                status, _, other = instance.ask("POST", "/v1/completions",
                                                {**LONG, "max_tokens": 20})
                self.assertEqual(status, 200, other)
                self.assertEqual(json.loads(other)["usage"]["completion_tokens"], 20)
            deadline = time.monotonic() + PATIENCE_S
            while instance.ctl("status").get("num_running", 0) > 0:
                self.assertLess(time.monotonic(), deadline, "it holds its room for ever")
                time.sleep(0.02)
            received = b""
            while part := slow.recv(65536):
                received += part
            events = received.split(b"data: ")
            error = json.loads(events[-2].split(b"\n")[0])["error"]
            self.assertEqual(error["code"], "client_too_slow")
            self.assertIn("reads too slowly", error["message"])
            self.assertTrue(events[-1].startswith(b"[DONE]"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
