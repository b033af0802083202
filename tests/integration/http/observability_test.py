#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of requests over HTTP.

    observability_test.py BIN_DIR [unittest arguments]

Goal: metrics count every answer, and every line of the log about a request has the name that its
client gave it. Method: requests of each kind to a running instance. Oracle: how many were sent.
"""

import json
import pathlib
import re
import sys
import time
import unittest

from instance import Instance, stopped

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
PATIENCE_S = 60


class ObservabilityTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls) -> None:
        cls.instance = cls.enterClassContext(Instance(
            BIN, "--log-format", "json", "--log-level", "debug", "--attention-workers", "1",
            "--stop-timeout-ms", "0", "--hang-timeout-ms", "0"))

    def metrics(self, pattern: str) -> dict[str, float]:
        """The values of series that match, by their labels but those that all have."""
        text = self.instance.ask("GET", "/metrics")[2].decode()
        series = re.findall(r"^(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE)
        return {name + re.sub(r'(model_name|engine)="[^"]*",?', "", labels): float(value)
                for name, labels, value in series if re.search(pattern, name)}

    def test_answers_are_counted_by_endpoint_and_code(self) -> None:
        pattern = "^afd_(http_request|request_params_n)"
        before = self.metrics(pattern)
        for method, path, body in (
                ("GET", "/v1/models", None), ("GET", "/v1/models", None),
                ("GET", "/v1/models/nobody", None), ("GET", "/nothing", None),
                ("BREW", "/live", None), ("POST", "/v1/completions", {"prompt": 5}),
                ("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3}),
                ("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3, "stream": True})):
            self.instance.ask(method, path, body)
        expected = {
            'handler="/v1/models",method="GET",status="2xx",code="200"': 2,
            'handler="/v1/models/{model}",method="GET",status="4xx",code="404"': 1,
            'handler="none",method="GET",status="4xx",code="404"': 1,
            'handler="/live",method="other",status="4xx",code="405"': 1,
            'handler="/v1/completions",method="POST",status="4xx",code="400"': 1,
            'handler="/v1/completions",method="POST",status="2xx",code="200"': 2,
            'handler="/v1/completions",method="POST",status="4xx",code="499"': 1}
        # So that it is not over before its client leaves.
        with stopped(self.instance.pids_of("ffn")):
            self.ask_and_leave()
            deadline = time.monotonic() + PATIENCE_S
            while True:
                after = self.metrics(pattern)
                grown = {labels: after.get("afd_http_requests_total" + labels, 0)
                         - before.get("afd_http_requests_total" + labels, 0) for labels in expected}
                if grown == expected or time.monotonic() > deadline:
                    break
        self.assertEqual(grown, expected)
        count = 'afd_http_request_duration_seconds_counthandler="/v1/completions"'
        self.assertEqual(after[count] - before.get(count, 0), 4)
        self.assertEqual(after["afd_request_params_n_count"]
                         - before["afd_request_params_n_count"], 3)
        self.assertGreater(
            after['afd_http_request_duration_seconds_sumhandler="/v1/completions"'], 0)

    def ask_and_leave(self) -> None:
        left = self.instance.connect()
        left.request("POST", "/v1/completions", json.dumps(
            {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "stream": True, "n": 16}))
        self.assertEqual(left.getresponse().status, 200)
        left.sock.close()
        left.close()

    def test_prefix_cache_is_counted_in_tokens(self) -> None:
        before = self.metrics("^afd_prefix_cache")
        for _ in range(2):
            self.assertEqual(self.instance.ask(
                "POST", "/v1/completions", {"prompt": [7] * 200, "max_tokens": 1})[0], 200)
        after = self.metrics("^afd_prefix_cache")
        self.assertEqual(after["afd_prefix_cache_queries_total"]
                         - before["afd_prefix_cache_queries_total"], 400)
        # Whole blocks of 64 of the second.
        self.assertEqual(after["afd_prefix_cache_hits_total"]
                         - before["afd_prefix_cache_hits_total"], 192)

    def test_every_line_of_a_request_has_its_clients_name(self) -> None:
        name = "trace-me/1"
        status, headers, _ = self.instance.ask(
            "POST", "/v1/completions", {"prompt": "a", "max_tokens": 3, "n": 2},
            headers={"X-Request-Id": name})
        self.assertEqual((status, headers["x-request-id"]), (200, name))
        deadline = time.monotonic() + PATIENCE_S
        while '200 after' not in "".join(self.told_of(name)) and time.monotonic() < deadline:
            time.sleep(0.02)
        told = self.told_of(name)
        for words, times in (("accepted from", 2), ("goes to attention worker", 2),
                             ("finished after", 2),
                             ("POST /v1/completions: 200 after", 1)):
            self.assertEqual(sum(words in line for line in told), times, told)
        numbers = {line["request"] for line in self.lines() if line.get("request_id") == name
                   and "request" in line}
        self.assertEqual(len(numbers), 2)
        for line in self.lines():
            if line.get("request") in numbers:
                self.assertEqual(line.get("request_id"), name, line)

    def lines(self) -> list[dict]:
        whole = self.instance.said().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def told_of(self, name: str) -> list[str]:
        return [line["message"] for line in self.lines() if line.get("request_id") == name]


if __name__ == "__main__":
    unittest.main(verbosity=2)
