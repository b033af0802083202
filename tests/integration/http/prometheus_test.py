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
import re
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
global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}
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
        self.log = self.enterContext(open(directory / "log", "w+", encoding="utf-8"))
        self.prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}/data",
             "--web.listen-address=127.0.0.1:0"], stdout=self.log, stderr=self.log)
        self.addCleanup(self.stop)
        found = self.wait_until(
            lambda: re.search(r'"Listening on" address=([\d.:]+)\n', self.said()))
        self.address = found.group(1)

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

    def wait_until(self, holds):
        """What `holds` gives, once that is something."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := holds()):
            self.assertLess(time.monotonic(), deadline, self.said())
            self.assertIsNone(self.prometheus.poll(), self.said())
            time.sleep(0.1)
        return found

    def wait_for(self, query: str, holds) -> list[dict]:
        """The series of `query`, once there are some and the value of each is as it shall be. A
        scrape that a busy machine does not end in time takes all away until the next."""
        def series() -> list[dict]:
            answer = self.ask("query", query=query)
            found = answer["result"] if answer else []
            return found if all(holds(float(one["value"][1])) for one in found) else []
        return self.wait_until(series)

    def test_counts_arrive(self) -> None:
        for _ in range(3):
            status, _, body = self.instance.ask("POST", "/v1/completions", {
                "prompt": "Hello", "max_tokens": 7, "ignore_eos": True})
            self.assertEqual(status, 200, body)
        self.wait_for('up{job="afd"}', lambda value: value == 1)
        tokens = self.wait_for("afd_generation_tokens_total", lambda value: value == 21)
        self.assertEqual(tokens[0]["metric"]["model_name"], "demo")
        self.wait_for('afd_request_success_total{finished_reason="length"}',
                      lambda value: value == 3)
        workers = self.wait_for("afd_worker_up", lambda value: value == 1)
        self.assertEqual(sorted((one["metric"]["role"], one["metric"]["worker"])
                                for one in workers),
                         [("attention", "0"), ("attention", "1"), ("ffn", "0")])
        # A quantile needs buckets that fit together.
        self.wait_for("histogram_quantile(0.5, afd_time_to_first_token_seconds_bucket)",
                      lambda value: value > 0)
        self.wait_until(
            lambda: (self.wait_until(lambda: self.ask("targets"))["activeTargets"][0]["lastError"]
                     == ""))
        # It asks for OpenMetrics, in which a counter's family is named without its end.
        kinds = self.wait_until(lambda: self.ask("metadata"))
        self.assertEqual(kinds["afd_generation_tokens"][0]["type"], "counter")
        self.assertEqual(kinds["afd_time_to_first_token_seconds"][0]["type"], "histogram")


if __name__ == "__main__":
    unittest.main(verbosity=2)
