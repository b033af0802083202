#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page at "/" of a real afdd, in headless Chromium.

    page_test.py BIN_DIR SCREENSHOT

Goal: a person who opens the address sees text stream and figures move, with nothing but afdd.
Method: a prompt is typed and sent while other clients keep the workers busy; the page's elements
are read, and a screenshot is written. Oracle: the text that the API gives for the same request, the
figures of /metrics and afdctl top, and the colours of the picture. Without Chromium it is skipped
(clients_required.py).
"""

import concurrent.futures
import json
import pathlib
import sys
import threading
import time
import unittest
from collections.abc import Callable

from browser import Browser, find_chromium
from clients_required import is_missing
from instance import START_SECONDS, Instance, stopped

BIN, SCREENSHOT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
PROMPT = "It was a fine \u20ac morning"
BUSY, BUBBLE = "43,108,176", "221,136,51"  # Of the style sheet: #2b6cb0, #dd8833.


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.instance = cls.enterClassContext(Instance(
            BIN, "--http-model", "demo", "--stop-timeout-ms", "0", "--hang-timeout-ms", "0"))

    def setUp(self) -> None:
        self.browser = self.enterContext(Browser(find_chromium()))
        self.browser.open(self.instance.url + "/")

    def fill(self, **fields) -> None:
        for name, value in fields.items():
            self.browser.type_into(name, str(value))

    def send(self) -> None:
        self.browser.evaluate("document.getElementById('send').click()")

    def send_in_steps(self, has_seen: str, then: Callable[[], None] = lambda: None) -> None:
        """And waits until the page has seen so much of the answer; then() while the experts rest.
        They do so again and again: they are quicker than a page that is read now and then."""
        experts = self.instance.pids_of("ffn")
        deadline = time.monotonic() + START_SECONDS
        with stopped(experts):
            self.send()
        while True:
            with stopped(experts):
                if self.browser.evaluate(has_seen):
                    return then()
            self.assertLess(time.monotonic(), deadline, has_seen)
            time.sleep(0.002)

    def answer(self) -> str:
        self.browser.wait_for("document.getElementById('stop').disabled")
        return self.browser.evaluate("document.getElementById('answer').textContent")

    def test_text_streams_as_the_api_gives_it(self) -> None:
        request = {"prompt": PROMPT, "max_tokens": 400, "temperature": 0.9, "seed": 11}
        whole = json.loads(self.instance.ask("POST", "/v1/completions", request)[2])
        self.browser.evaluate("""window.lengths = new Set();
            new MutationObserver(() => lengths.add(by("answer").textContent.length))
                .observe(by("answer"), { childList: true });""")
        self.fill(prompt=PROMPT, max_tokens=400, temperature=0.9, seed=11)
        self.send_in_steps("lengths.size > 3 || document.getElementById('stop').disabled")
        self.assertEqual(self.answer(), PROMPT + whole["choices"][0]["text"])
        self.assertGreater(self.browser.evaluate("lengths.size"), 3, "it came at once")
        speed = self.browser.evaluate("document.getElementById('speed').textContent")
        num_tokens = whole["usage"]["completion_tokens"]
        self.assertRegex(speed, rf"^{num_tokens} tokens, the first after [\d.]+ ms, \d+ a second$")
        self.assertEqual(self.browser.evaluate("document.getElementById('model').textContent"),
                         "demo")
        self.assertEqual(self.browser.problems, [])

    def test_stop_ends_the_request(self) -> None:
        def stop() -> None:
            nonlocal has_stopped
            if self.browser.evaluate("document.getElementById('stop').disabled"):
                return  # It is whole.
            self.browser.evaluate("document.getElementById('stop').click()")
            self.answer()
            self.browser.wait_for("(async () => parse(await (await fetch('/metrics')).text())"
                                  ".afd_num_requests_running === 0)()")
            has_stopped = True

        self.fill(max_tokens=900)
        has_stopped = False
        deadline = time.monotonic() + START_SECONDS
        while not has_stopped:
            self.send_in_steps("document.getElementById('answer').childNodes.length > 3", stop)
            self.assertLess(time.monotonic(), deadline, "each was whole before it could be stopped")
        self.assertEqual(self.browser.problems, [])

    def test_refusal_is_shown_with_the_words_of_the_api(self) -> None:
        request = {"prompt": PROMPT, "max_tokens": 99999}
        refused = json.loads(self.instance.ask("POST", "/v1/completions", request)[2])
        self.fill(prompt=PROMPT, max_tokens=99999)
        self.send()
        self.assertEqual(self.answer(), PROMPT + refused["error"]["message"])
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('.error').length"), 1)

    def test_charts_draw_what_the_instance_does(self) -> None:
        is_over = threading.Event()

        def keep_busy(seed: int) -> None:
            while not is_over.is_set():
                self.instance.ask("POST", "/v1/completions", {
                    "prompt": PROMPT, "max_tokens": 100, "seed": seed, "ignore_eos": True})

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            try:
                runs = [pool.submit(keep_busy, seed) for seed in range(4)]
                self.browser.wait_for("lines['tokens a second'].past.length >= 12")
                self.fill(prompt=PROMPT, seed=11)
                self.send()
                self.answer()
            finally:
                is_over.set()
            for run in runs:
                run.result()
        picture = self.browser.screenshot()
        SCREENSHOT.parent.mkdir(parents=True, exist_ok=True)
        SCREENSHOT.write_bytes(picture)
        self.check_lines()
        self.check_workers()
        self.check_experts()
        self.assertEqual(self.browser.problems, [])
        elsewhere = [url for url in self.browser.requests
                     if not url.startswith((self.instance.url + "/", "data:,"))]
        self.assertEqual(elsewhere, [])
        self.check_picture(self.browser.num_pixels(picture))

    def check_lines(self) -> None:
        """Each figure has a point for each second; those of work are not flat."""
        points = self.browser.evaluate("""Object.fromEntries(Object.entries(lines).map(
            ([name, line]) =>
                [name, line.figure.querySelector("polyline").points.numberOfItems]))""")
        self.assertGreaterEqual(len(points), 9)
        self.assertGreaterEqual(min(points.values()), 12)
        past = self.browser.evaluate("Object.fromEntries(Object.entries(lines).map("
                                     "([name, line]) => [name, line.past]))")
        for name in ("tokens a second", "requests running", "finished a second",
                     "first token, ms", "between tokens, ms", "rounds in flight",
                     "KV cache reserved, %"):
            self.assertGreater(max(past[name]), 0, name)
        self.assertEqual(max(past["failed or refused"]), 0)

    def check_workers(self) -> None:
        """A row for each worker that afdctl knows, with parts of time that add up to all of it."""
        top = self.instance.ctl("top", "--once")
        rows = self.browser.evaluate("[...document.querySelectorAll('#workers tr')].map("
                                     "row => [...row.cells].map(cell => cell.textContent))")
        self.assertEqual([row[0] for row in rows],
                         [f"{worker['role']} {worker['index']}" for worker in top["workers"]])
        self.assertEqual([row[9] for row in rows],
                         [str(worker["num_restarts"]) for worker in top["workers"]])
        for row in rows:
            parts = [int(text.removesuffix(" %")) for text in row[2:5]]
            self.assertAlmostEqual(sum(parts), 100, delta=1)
        self.check_bars(rows)
        loads = self.browser.evaluate("Object.values(workers).map(worker => worker.past)")
        for past in loads:
            self.assertGreater(max(load["busy"] for load in past), 0)
        self.assertGreater(max(load["bubble"] for past in loads for load in past), 0)
        self.assertGreater(max(load["waits"] for past in loads for load in past), 0)

    def check_bars(self, rows: list[list[str]]) -> None:
        """Beside the last minute each worker has a bar of the last second: busy, bubble and wait,
        as wide as its numbers say, side by side."""
        # In one look: the page draws them anew each second, with the numbers.
        bars = self.browser.evaluate("""[...document.querySelectorAll('#workers tr')].map(row => {
            const all = row.querySelector('.bar').getBoundingClientRect();
            return ['busy', 'bubble', 'wait'].map((name, i) => {
                const part = row.querySelector('.bar .' + name).getBoundingClientRect();
                return { begin: (part.left - all.left) / all.width, part: part.width / all.width,
                         text: parseInt(row.cells[i + 2].textContent) / 100 };
            });
        })""")
        self.assertEqual(len(bars), len(rows))
        for bar in bars:
            end = 0.0
            for part in bar:
                self.assertAlmostEqual(part["begin"], end, delta=0.01)
                self.assertAlmostEqual(part["part"], part["text"], delta=0.01)
                end += part["part"]
            self.assertAlmostEqual(end, 1, delta=0.01)

    def test_waits_are_shown_as_afdctl_top_has_them(self) -> None:
        """Lines of /health, which has none here: so the page is given some, and then none."""
        shown = "document.getElementById('waits').innerText"
        self.browser.wait_for("last !== null")
        self.browser.evaluate("""window.fetchThere = window.fetch;
            window.fetch = async path => path !== '/health' ? fetchThere(path) : new Response(
                JSON.stringify({ status: 'ok', waits: ['attention 0: <b>ffn 1</b>', 'ffn 0'] }))
        """)
        self.browser.wait_for(f"{shown} === 'wait: attention 0: <b>ffn 1</b>\\nwait: ffn 0'")
        self.browser.evaluate("window.fetch = window.fetchThere")
        self.browser.wait_for(f"{shown} === ''")
        self.assertEqual(self.browser.problems, [])

    def check_experts(self) -> None:
        num_experts = len(self.instance.ctl("top", "--once")["expert_rows"])
        colours = self.browser.evaluate("[...document.querySelectorAll('#experts div')].map("
                                        "cell => getComputedStyle(cell).backgroundColor)")
        self.assertEqual(len(colours), num_experts)
        self.assertGreater(len(set(colours)), 3)
        text = self.browser.evaluate("document.getElementById('experts_text').textContent")
        self.assertRegex(
            text, r"rows in the last second; busiest \d+ with \d+\.\d\d times the mean")

    def check_picture(self, num_pixels: dict[str, int]) -> None:
        total = sum(num_pixels.values())
        self.assertGreater(total, 500_000)
        self.assertLess(max(num_pixels.values()), 0.98 * total, "nearly blank")
        self.assertGreater(len(num_pixels), 100)
        # Areas, beside what lines and text have.
        self.assertGreater(num_pixels.get(BUSY, 0), 100)
        self.assertGreater(num_pixels.get(BUBBLE, 0), 100)


if __name__ == "__main__":
    del sys.argv[1:3]
    if find_chromium() is None:
        sys.exit(is_missing("Chromium is not installed (scripts/setup --clients)"))
    unittest.main(verbosity=2)
