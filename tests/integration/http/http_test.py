#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that exist, against a real afdd over HTTP.

    http_test.py BIN_DIR [unittest arguments]

Goal: what people have in their hands drives afdd unchanged, and HTTP changes no bit. Method:
Python's http.client, curl, raw sockets, and afdctl over the client socket, at a running instance.
Oracle: the forms of the OpenAI API, and the answers of the other door.
"""

import concurrent.futures
import json
import pathlib
import re
import socket
import struct
import subprocess
import sys
import time
import unittest

from instance import Instance, events_of

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
PROMPT = "It was a fine morning, and the young lady"
PATIENCE_S = 60


class HttpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.instance = cls.enterClassContext(
            Instance(BIN, "--stop-timeout-ms", "0", "--hang-timeout-ms", "0"))

    def complete(self, **fields) -> dict:
        status, _, body = self.instance.ask("POST", "/v1/completions", {"prompt": PROMPT, **fields})
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def stream(self, **fields) -> list[dict]:
        status, headers, body = self.instance.ask(
            "POST", "/v1/completions", {"prompt": PROMPT, "stream": True, **fields})
        self.assertEqual(status, 200, body)
        self.assertEqual(headers["content-type"], "text/event-stream; charset=utf-8")
        events = events_of(body)
        self.assertEqual(events[-1], "[DONE]")
        return [json.loads(event) for event in events[:-1]]

    def by_socket(self, *arguments: str) -> dict:
        return self.instance.ctl("generate", PROMPT, "--token-ids", "--logprobs", *arguments)

    def test_same_bits_as_over_the_socket(self) -> None:
        """Text, ids and log probabilities, whole and streamed, greedy and sampled."""
        for temperature in (0, 1):
            socket_answer = self.by_socket("--max-tokens", "40", "--seed", "11", "--ignore-eos",
                                           "--temperature", str(temperature))
            wish = {"max_tokens": 40, "seed": 11, "temperature": temperature, "top_p": 1,
                    "logprobs": 0, "ignore_eos": True, "return_token_ids": True}
            whole = self.complete(**wish)["choices"][0]
            self.assertEqual(whole["text"], socket_answer["text"])
            self.assertEqual(whole["token_ids"], socket_answer["token_ids"])
            self.assertEqual(whole["prompt_token_ids"], socket_answer["prompt_ids"])
            self.assertEqual([float32(x) for x in whole["logprobs"]["token_logprobs"]],
                             [float32(x) for x in socket_answer["logprobs"]])
            chunks = [event["choices"][0] for event in self.stream(**wish)]
            self.assertEqual("".join(chunk["text"] for chunk in chunks), whole["text"])
            self.assertEqual(sum((chunk["token_ids"] for chunk in chunks), []), whole["token_ids"])
            self.assertEqual(
                sum((chunk["logprobs"]["token_logprobs"] for chunk in chunks if chunk["logprobs"]),
                    []), whole["logprobs"]["token_logprobs"])

    def test_a_killed_worker_is_a_pause(self) -> None:
        """kill -9 of the attention workers in mid-stream: the same text, to the end."""
        wish = {"max_tokens": 300, "seed": 5, "ignore_eos": True}
        expected = self.complete(**wish)["choices"][0]["text"]
        num_replays = self.instance.num_replays()
        received = self.instance.stream_through_kills("/v1/completions",
                                                      {"prompt": PROMPT, **wish})
        text = "".join(json.loads(event)["choices"][0]["text"]
                       for event in events_of(received)[:-1])
        self.assertEqual(text, expected)
        self.assertGreater(self.instance.num_replays(), num_replays)

    def test_every_event_has_the_form_of_the_api(self) -> None:
        events = self.stream(max_tokens=5, n=2, ignore_eos=True,
                             stream_options={"include_usage": True})
        self.assertEqual({event["object"] for event in events}, {"text_completion"})
        self.assertEqual(len({event["id"] for event in events}), 1)
        self.assertEqual(len({event["created"] for event in events}), 1)
        self.assertTrue(events[0]["id"].startswith("cmpl-"))
        for choice in (0, 1):
            reasons = [event["choices"][0]["finish_reason"] for event in events
                       if event["choices"] and event["choices"][0]["index"] == choice]
            self.assertEqual(reasons, [None] * 5 + ["length"])
        self.assertEqual([event["usage"] is None for event in events],
                         [True] * (len(events) - 1) + [False])
        usage = events[-1]["usage"]
        self.assertEqual(usage["completion_tokens"], 10)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + 10)

    def test_choices_of_one_seed_differ_and_the_first_is_that_of_one(self) -> None:
        wish = {"max_tokens": 20, "seed": 3, "temperature": 1}
        texts = [choice["text"] for choice in self.complete(n=3, **wish)["choices"]]
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(self.complete(**wish)["choices"][0]["text"], texts[0])

    def test_arrays_of_prompts_are_answered_in_their_order(self) -> None:
        prompts = ["Once upon a time", "The end of the"]
        wish = {"max_tokens": 8, "temperature": 0}
        both = self.complete(**wish, prompt=prompts)["choices"]
        for i, prompt in enumerate(prompts):
            alone = self.complete(**wish, prompt=prompt)["choices"][0]
            self.assertEqual(both[i]["text"], alone["text"])
            ids = json.loads(self.instance.ask("POST", "/tokenize", {"prompt": prompt})[2])
            by_ids = self.complete(**wish, prompt=ids["tokens"])["choices"][0]
            self.assertEqual(by_ids["text"], alone["text"])

    def test_echo_scores_the_prompt(self) -> None:
        scored = self.complete(echo=True, max_tokens=0, logprobs=0)
        choice = scored["choices"][0]
        self.assertEqual(choice["text"], PROMPT)
        self.assertEqual(scored["usage"]["completion_tokens"], 0)
        logprobs = choice["logprobs"]
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertEqual(len(logprobs["tokens"]), scored["usage"]["prompt_tokens"])
        self.assertTrue(all(value < 0 for value in logprobs["token_logprobs"][1:]))
        socket_answer = self.by_socket("--max-tokens", "1", "--prompt-logprobs")
        self.assertEqual([float32(x) for x in logprobs["token_logprobs"][1:]],
                         [float32(x) for x in socket_answer["prompt_logprobs"]])

    def test_echo_has_the_alternatives_of_prompt_tokens(self) -> None:
        """Those of each are what the tokens before it alone would have been continued with: who
        scores a text this way asks whether each of its tokens is the most likely one."""
        choice = self.complete(echo=True, max_tokens=1, logprobs=2, temperature=0,
                               return_token_ids=True)["choices"][0]
        logprobs = choice["logprobs"]
        ids = choice["prompt_token_ids"]
        self.assertIsNone(logprobs["top_logprobs"][0])
        self.assertEqual(len(logprobs["top_logprobs"]), len(ids) + 1)
        for i in (1, 2, len(ids) // 2, len(ids) - 1):
            alone = self.complete(prompt=ids[:i], max_tokens=1, logprobs=2,
                                  temperature=0)["choices"][0]["logprobs"]
            scored = logprobs["top_logprobs"][i]
            for token, value in alone["top_logprobs"][0].items():
                self.assertEqual(float32(scored[token]), float32(value), (i, token))
        by_socket = self.by_socket("--max-tokens", "1", "--prompt-logprobs", "--top-logprobs", "2")
        self.assertEqual([[float32(value) for _, value in top]
                          for top in by_socket["prompt_top_logprobs"]],
                         [[float32(value) for value in sorted(top.values())[:-3:-1]]
                          for top in logprobs["top_logprobs"][1:-1]])

    def streamed_text(self, wish: dict) -> str:
        """The texts of a stream's events, each of whole characters."""
        status, _, body = self.instance.ask("POST", "/v1/completions", {**wish, "stream": True})
        self.assertEqual(status, 200, body)
        texts = []
        for event in body.split(b"\n\n"):
            data = event.decode()  # Strictly: a half character is an error.
            if data.startswith("data: {"):
                texts.append(json.loads(data.removeprefix("data: "))["choices"][0]["text"])
                texts[-1].encode()  # JSON can also write halves, as \uD83D alone.
        self.assertGreater(len(texts), wish["max_tokens"] // 2)
        return "".join(texts)

    def test_events_never_split_a_character(self) -> None:
        """The prompt is echoed, and then said again, each of its bytes a token, as a schema asks.
        Oracle: the text that is known before, and the answer that is not streamed."""
        prompt = "日本語 é 🙂"
        schema = {"type": "json_schema",
                  "json_schema": {"name": "again", "schema": {"const": prompt}}}
        wish = {"prompt": prompt, "echo": True, "max_tokens": 30, "response_format": schema}
        whole = self.complete(**wish)["choices"][0]["text"]
        self.assertEqual(whole, f'{prompt}"{prompt}"')
        self.assertEqual(self.streamed_text(wish), whole)

    def test_events_say_of_bytes_that_are_no_text_what_the_whole_answer_says(self) -> None:
        """Bytes of characters in any order, with U+FFFD for those that make up none. Oracle: the
        answer that is not streamed, and all of its tokens decoded at once."""
        prompt = "日本語 é 🙂"
        status, _, body = self.instance.ask("POST", "/tokenize", {"prompt": prompt})
        self.assertEqual(status, 200, body)
        wish = {"prompt": prompt, "echo": True, "max_tokens": 60, "temperature": 2, "seed": 1,
                "ignore_eos": True, "return_token_ids": True,
                "logit_bias": {str(token): 100 for token in json.loads(body)["tokens"][1:]}}
        choice = self.complete(**wish)["choices"][0]
        whole = choice["text"]
        self.assertTrue(whole.startswith(prompt), whole)
        self.assertIn("\N{REPLACEMENT CHARACTER}", whole)
        ids = choice["prompt_token_ids"] + choice["token_ids"]
        decoded = self.instance.ask("POST", "/detokenize",
                                    {"tokens": ids, "skip_special_tokens": True})[2]
        self.assertEqual(whole, json.loads(decoded)["prompt"])
        self.assertEqual(self.streamed_text(wish), whole)

    def test_chat_without_a_template_says_what_to_do(self) -> None:
        status, _, body = self.instance.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hello"}]})
        self.assertEqual(status, 400)
        self.assertIn("no chat template", json.loads(body)["error"]["message"])
        self.assertIn("/v1/completions", json.loads(body)["error"]["message"])

    def test_page_is_one_text(self) -> None:
        status, headers, body = self.instance.ask("GET", "/")
        self.assertEqual((status, headers["content-type"]), (200, "text/html; charset=utf-8"))
        self.assertNotIn(b"http://", body)
        self.assertNotIn(b"https://", body)

    def test_curl_transcript(self) -> None:
        """What README shows, by curl as it is, without a header of its own."""
        done = subprocess.run(
            ["curl", "-sS", "-N", "-i", self.instance.url + "/v1/completions",
             "-d", json.dumps({"prompt": "Hi", "max_tokens": 3, "stream": True, "seed": 1})],
            capture_output=True, timeout=PATIENCE_S, check=True)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 200 OK\r\n"), head)
        self.assertEqual(events_of(body)[-1], "[DONE]")
        whole = subprocess.run(
            ["curl", "-sS", "--fail-with-body", "--http1.0", self.instance.url + "/v1/completions",
             "-d", json.dumps({"prompt": "Hi", "max_tokens": 3})],
            capture_output=True, timeout=PATIENCE_S, check=True)
        self.assertEqual(json.loads(whole.stdout)["object"], "text_completion")
        large = subprocess.run(
            ["curl", "-sS", "-w", "%{http_code}", "-o", "/dev/null",
             self.instance.url + "/v1/completions", "-d", "@-"],
            input=b" " * (8 << 20), capture_output=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(large.stdout, b"413", large.stderr)

    def test_disconnecting_frees_the_room(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            connection = self.instance.connect()
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True, "n": 16}))
            connection.getresponse().read1(10)
            if self.instance.ctl("status")["num_running"] > 0:
                break
            connection.close()  # It was quicker than afdctl.
            self.assertLess(time.monotonic(), deadline)
        connection.sock.close()
        connection.close()
        status = self.wait_for(lambda status: status["num_running"] == 0)
        self.assertEqual(sum(worker.get("kv_tokens_used", 0) for worker in status["workers"]), 0)

    def wait_for(self, holds) -> dict:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status = self.instance.ctl("status")
            if holds(status):
                return status
            self.assertLess(time.monotonic(), deadline, status)
            time.sleep(0.02)

    def test_garbage_stops_nobody(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            stream = pool.submit(self.stream, max_tokens=200, ignore_eos=True)
            for seed in range(200):
                with socket.create_connection(("127.0.0.1", self.instance.port)) as connection:
                    garbage = bytes((seed * 31 + i * 7) % 256 for i in range(seed))
                    connection.sendall(b"POST /v1/completions HTTP/1.1\r\n" + garbage)
            self.assertEqual(len(stream.result()), 201)
        self.assertEqual(self.instance.ask("GET", "/ready")[0], 200)

    def test_metrics_are_what_prometheus_takes(self) -> None:
        before = self.metrics()
        self.complete(max_tokens=7, ignore_eos=True)
        after = self.metrics()
        for name, grown in (("afd_generation_tokens_total", 7),
                            ("afd_time_to_first_token_seconds_count", 1),
                            ("afd_inter_token_latency_seconds_count", 6),
                            ('afd_request_success_total/length', 1)):
            self.assertEqual(after[name] - before[name], grown, name)
        self.assertEqual(after["afd_num_requests_running"], 0)
        text = self.instance.ask("GET", "/metrics")[2]
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, b""))

    def metrics(self) -> dict[str, float]:
        status, headers, body = self.instance.ask("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertEqual(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8")
        values = {}
        for line in body.decode().splitlines():
            if not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                reason = re.search('finished_reason="([a-z]*)"', series)
                name = series.split("{")[0] + (f"/{reason.group(1)}" if reason else "")
                values[name] = float(value)
        return values


def float32(value: float) -> bytes:
    """Its bits as a float: shorter and longer decimals of one float are equal."""
    return struct.pack("f", value)


if __name__ == "__main__":
    unittest.main(verbosity=2)
