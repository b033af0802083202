#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams that are resumed over HTTP, against a real afdd.

    resume_test.py BIN_DIR [unittest arguments]

Goal: a client that lost its connection gets exactly the events that it has not. Method: sockets
that are reset in mid-stream, a worker killed between. Oracle: the undisturbed stream of the same
request, and the same stream resumed from its begin.
"""

import json
import os
import pathlib
import re
import signal
import socket
import struct
import sys
import tempfile
import time
import unittest

from chat_model import make_chat_model
from instance import Instance, events_of, stopped

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
PATIENCE_S = 60
LONG = {"prompt": "It was a fine morning", "max_tokens": 300, "ignore_eos": True, "seed": 7,
        "temperature": 0.8, "stream": True, "stream_options": {"include_usage": True}}


def text_of(body: bytes) -> str:
    events = [json.loads(event) for event in events_of(body) if event != "[DONE]"]
    return "".join(event["choices"][0]["text"] for event in events if event["choices"])


class ResumeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        directory = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.instance = cls.enterClassContext(
            Instance(BIN, "--model", str(make_chat_model(pathlib.Path(directory))),
                     "--stop-timeout-ms", "0", "--hang-timeout-ms", "0"))

    def wait_for(self, holds) -> dict:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status = self.instance.ctl("status")
            if holds(status):
                return status
            self.assertLess(time.monotonic(), deadline, status)
            time.sleep(0.02)

    def break_stream(self, num_events: int, **fields) -> tuple[str, bytes, int]:
        """Resets the connection after so many events: id, what was read, number of the last."""
        connection = self.instance.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {**LONG, "resumable_ms": 60000, **fields}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        read = b""
        while read.count(b"\n\n") < num_events:
            read += answer.read1(200)
        # A reset, and nothing of a goodbye.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        answer.close()
        connection.close()
        read = read[:read.rindex(b"\n\n") + 2]
        return (answer.headers["X-Afd-Resume"], read,
                int(re.findall(rb"(?m)^id: (\d+)$", read)[-1]))

    def resume(self, resume_id: str, last: int = 0) -> tuple[int, dict, bytes]:
        return self.instance.ask("GET", f"/v1/resume/{resume_id}",
                                 headers={"Last-Event-ID": str(last)} if last else {})

    def break_stream_and_experts(self) -> tuple[str, bytes, int]:
        experts = self.instance.pids_of("ffn")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            broken = self.break_stream(20)
            with stopped(experts):
                left = self.wait_for(lambda one: one["num_detached"] > 0 or one["num_running"] == 0)
                if left["num_running"] > 0:
                    for pid in experts:
                        os.kill(pid, signal.SIGKILL)
                    return broken
            self.assertLess(time.monotonic(), deadline, "each was whole when it was left")

    def test_both_parts_are_the_undisturbed_stream_also_if_a_worker_dies_between(self) -> None:
        undisturbed = self.instance.ask("POST", "/v1/completions", LONG)[2]
        resume_id, first, last = self.break_stream_and_experts()
        status, headers, rest = self.resume(resume_id, last)
        self.assertEqual(status, 200)
        self.assertEqual(headers["x-afd-resume"], resume_id)
        self.assertTrue(rest.startswith(f"id: {last + 1}\n".encode()), rest[:100])
        self.assertEqual(self.resume(resume_id)[2], first + rest)
        self.assertEqual(text_of(first + rest), text_of(undisturbed))
        events = events_of(first + rest)
        self.assertEqual(len(events), len(events_of(undisturbed)))
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(json.loads(events[-2])["usage"]["completion_tokens"], 300)

    def test_chats_likewise(self) -> None:
        connection = self.instance.connect()
        wish = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 40, "seed": 3,
                "temperature": 1, "stream": True, "resumable_ms": 60000}
        connection.request("POST", "/v1/chat/completions", json.dumps(wish),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        whole = answer.read()
        self.assertEqual(answer.status, 200, whole)
        connection.close()
        self.assertEqual(self.resume(answer.headers["X-Afd-Resume"])[2], whole)
        at = whole.index(b"id: 6\n")
        self.assertEqual(self.resume(answer.headers["X-Afd-Resume"], 5)[2], whole[at:])

    def test_what_nobody_resumes_gives_its_kv_room_back(self) -> None:
        # Nothing else is kept in it, and its FFN worker stays stopped, so that nothing ends.
        with Instance(BIN, "--stop-timeout-ms", "0") as instance:
            self.instance = instance
            pids = instance.pids_of("ffn")
            for _ in range(20):
                resume_id, _, _ = self.break_stream(1, resumable_ms=5000)
                with stopped(pids):
                    left = self.wait_for(lambda one: one["num_detached"] == 1)
                    self.wait_for(lambda one: one["num_detached"] == 0)
                # Unless it was over before they stopped, on a quick machine.
                if left["num_running"] == 1:
                    break
            else:
                self.fail("every request was over before its FFN worker stopped")
            status = self.wait_for(lambda one: one["num_running"] == 0)
            self.assertEqual(sum(one["kv_tokens_used"] for one in status["workers"]), 0)
            status, _, body = self.resume(resume_id)
            self.assertEqual(status, 404)
            self.assertEqual(json.loads(body)["error"]["code"], "resume_id_not_found")


if __name__ == "__main__":
    unittest.main()
