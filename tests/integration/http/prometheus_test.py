#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus server scrapes a real afdd.

    prometheus_test.py BIN_DIR

Goal: what people point at /metrics takes it. Method: Prometheus, with nothing configured but the
address and a short interval, is asked by its own API. Oracle: what it says about the scrape, and
the counts of the requests that were made.
"""

import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

from instance import Instance

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
PATIENCE_S = 60
CONFIG = """
global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}
scrape_configs:
  - job_name: afd
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class PrometheusTest(unittest.TestCase):
    def setUp(self) -> None:
        self.instance = self.enterContext(Instance(BIN, "--http-model", "demo"))
        directory = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="afd-prometheus-")))
        config = directory / "prometheus.yml"
        config.write_text(CONFIG.format(port=self.instance.port), encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.log = self.enterContext(open(directory / "log", "w+", encoding="utf-8"))
        self.prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}/data",
             f"--web.listen-address={self.address}"], stdout=self.log, stderr=self.log)
        self.addCleanup(self.stop)

    def stop(self) -> None:
        self.prometheus.terminate()
        self.prometheus.wait(PATIENCE_S)

    def ask(self, path: str, **parameters) -> object:
        """What the API of Prometheus answers; None while it is not up."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return json.load(answer)["data"]
        except OSError:
            self.assertIsNone(self.prometheus.poll(), self.said())
            return None

    def said(self) -> str:
        return pathlib.Path(self.log.name).read_text(encoding="utf-8")

    def wait_for(self, query: str, wanted: float) -> list[dict]:
        """The series of `query`, once there are some and each has this value."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.ask("query", query=query)
            series = answer["result"] if answer else []
            if series and all(float(one["value"][1]) == wanted for one in series):
                return series
            self.assertLess(time.monotonic(), deadline, f"{query}: {series}\n{self.said()}")
            time.sleep(0.1)

    def test_counts_arrive(self) -> None:
        for _ in range(3):
            status, _, body = self.instance.ask("POST", "/v1/completions", {
                "prompt": "Hello", "max_tokens": 7, "ignore_eos": True})
            self.assertEqual(status, 200, body)
        self.wait_for('up{job="afd"}', 1)
        tokens = self.wait_for("afd_generation_tokens_total", 21)
        self.assertEqual(tokens[0]["metric"]["model_name"], "demo")
        self.wait_for('afd_request_success_total{finished_reason="length"}', 3)
        workers = self.wait_for("afd_worker_up", 1)
        self.assertEqual(sorted((one["metric"]["role"], one["metric"]["worker"])
                                for one in workers),
                         [("attention", "0"), ("attention", "1"), ("ffn", "0")])
        # A quantile needs buckets that fit together.
        median = self.ask("query", query="histogram_quantile(0.5, "
                                         "afd_time_to_first_token_seconds_bucket)")["result"]
        self.assertGreater(float(median[0]["value"][1]), 0)
        self.assertEqual(self.ask("targets")["activeTargets"][0]["lastError"], "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
