#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams over HTTP through a resize of the instance, against a real afdd.

    resize_test.py BIN_DIR [unittest arguments]

Goal: who streams sees a pause and nothing else. Method: streams that are in flight at every moment
while afdctl resizes up and down. Oracle: the undisturbed stream of the same request.
"""

import concurrent.futures
import json
import pathlib
import sys
import threading
import unittest

from instance import Instance, events_of

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
LONG = {"prompt": "It was a fine morning", "max_tokens": 300, "ignore_eos": True, "seed": 7,
        "temperature": 0.8, "stream": True, "logprobs": 1}
NUM_CLIENTS = 4


def parts_of(body: bytes) -> list:
    """What a client keeps of a stream: texts, log probabilities, the end's reason."""
    events = events_of(body)
    assert events[-1] == "[DONE]", events[-1]
    return [choice for event in events[:-1] for choice in json.loads(event)["choices"]]


class ResizeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.instance = cls.enterClassContext(Instance(BIN))

    def test_streams_go_on_with_the_same_events(self) -> None:
        undisturbed = parts_of(self.instance.ask("POST", "/v1/completions", LONG)[2])
        self.assertEqual(len([part for part in undisturbed if part["text"]]) > 100, True)
        is_ending = threading.Event()
        bodies: list[bytes] = []

        def stream() -> None:
            while not is_ending.is_set():
                status, _, body = self.instance.ask("POST", "/v1/completions", LONG)
                bodies.append(body if status == 200 else b"status %d" % status)

        num_moved = 0
        with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
            clients = [pool.submit(stream) for _ in range(NUM_CLIENTS)]
            try:
                for attention, ffn in ((1, 2), (3, 1), (2, 1)):
                    resized = self.instance.ctl("resize", "--attention", str(attention),
                                                "--ffn", str(ffn))
                    self.assertEqual(resized["attention_workers"], attention)
                    self.assertEqual(resized["ffn_workers"], ffn)
                    num_moved += resized["num_replays"]
                    self.assertEqual(self.instance.ask("GET", "/ready")[0], 200)
                    self.assertEqual(self.instance.ask("GET", "/health")[0], 200)
                    self.assertEqual(len(self.instance.ctl("status")["workers"]), attention + ffn)
            finally:
                is_ending.set()
            for client in clients:
                client.result()
        self.assertGreater(num_moved, 0)
        for body in bodies:
            self.assertEqual(parts_of(body), undisturbed)


if __name__ == "__main__":
    unittest.main()
