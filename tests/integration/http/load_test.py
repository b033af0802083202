#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""afd-load --url, against a real afdd and against servers that misbehave.

    load_test.py BIN_DIR [unittest arguments]

Goal: what it reports over HTTP is what happened. Method: the real program, its table and its files.
Oracle: the same run over the socket; scripts of what a server does wrong, each of which must be
counted under its own name and never as an answer.
"""

import csv
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

from chat_model import make_chat_model
from hostile_server import (DONE, GOOD, LAST_CHUNK, STREAM_HEAD, HostileServer, chunk, event,
                            stream, texts, usage, whole)
from instance import Instance

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
PATIENCE_S = 120


class LoadTest(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="afd-load-")))
        self.num_runs = 0

    def load(self, *arguments: str, environment: dict | None = None) -> subprocess.CompletedProcess:
        """One run; its files are in self.out."""
        self.num_runs += 1
        self.out = self.directory / str(self.num_runs)
        return subprocess.run(
            [BIN / "afd-load", "--out", self.out, *arguments],
            env={**os.environ, **(environment or {})}, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False)

    def report(self) -> dict:
        return json.loads((self.out / "result.json").read_text(encoding="utf-8"))

    def requests(self) -> list[dict]:
        with open(self.out / "requests.csv", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def misbehave(self, answer: list, *arguments: str) -> tuple[subprocess.CompletedProcess, dict]:
        """Three requests, each answered so; the level of the report."""
        with HostileServer(lambda body: answer) as server:
            done = self.load("--url", server.url, "--requests", "3", "--concurrency", "1",
                             "--warmup", "0", "--max-tokens", "3", *arguments)
        return done, self.report()["levels"][0]

    def assert_failed(self, answer: list, kind: str, sample: str, *arguments: str) -> None:
        done, level = self.misbehave(answer, *arguments)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual((level["num_ok"], level["num_failed"]), (0, 3))
        self.assertEqual(level["ttft_us"]["count"], 0)
        self.assertEqual([(error["kind"], error["count"]) for error in level["errors"]],
                         [(kind, 3)])
        self.assertIn(sample, level["errors"][0]["sample"])
        self.assertIn(f"\nfailed 3: {kind}, as in: ", done.stdout)
        self.assertEqual({row["failure"] for row in self.requests()}, {kind})

    def assert_refused(self, exit_code: int, message: str, *arguments: str,
                       environment: dict | None = None) -> None:
        done = self.load(*arguments, environment=environment)
        self.assertEqual(done.returncode, exit_code, done.stderr)
        self.assertRegex(done.stderr, r"^error: [^\n]*\n$")
        self.assertIn(message, done.stderr)
        self.assertFalse(self.out.exists())


class AfddTest(LoadTest):
    @classmethod
    def setUpClass(cls) -> None:
        model = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="afd-chat-"))
        cls.instance = cls.enterClassContext(
            Instance(BIN, "--model", make_chat_model(pathlib.Path(model)), "--http-model", "demo"))

    def test_same_workload_as_over_the_socket(self) -> None:
        """Prompts, lengths, seeds and so the answers are the same through both doors."""
        workload = ("--requests", "12", "--concurrency", "3", "--max-tokens", "4:20",
                    "--temperature", "0.8", "--seed", "5", "--warmup", "1")
        rows = []
        for door in (("--instance", self.instance.name), ("--url", self.instance.url)):
            done = self.load(*door, *workload, environment=self.instance.environment)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"\nc=3 +12 +12 +0 ")
            rows.append(sorted(
                (int(row["index"]), row["prompt_index"], row["max_tokens"], row["num_tokens"],
                 row["num_prompt_tokens"]) for row in self.requests()))
        self.assertEqual(rows[0], rows[1])
        report = self.report()
        self.assertEqual(report["server"]["model"], "demo")
        self.assertEqual(report["server"]["api"], "completions")
        self.assertGreater(report["server"]["context_length"], 0)
        self.assertTrue(report["server"]["takes_token_ids"])
        level = report["levels"][0]
        self.assertEqual(level["num_guessed"], 0)
        self.assertEqual(level["itl_us"]["count"], level["num_output_tokens"] - 12)

    def test_chats_and_open_loop(self) -> None:
        done = self.load("--url", self.instance.url + "/v1", "--chat", "--rate", "20", "--requests",
                         "10", "--ignore-eos", "--max-tokens", "6")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = self.report()
        self.assertEqual(report["server"]["api"], "chat")
        self.assertEqual(report["levels"][0]["num_output_tokens"], 60)
        self.assertEqual(report["levels"][0]["client"]["lag_us"]["count"], 10)

    def test_what_the_server_refuses_is_said_before_anything_is_measured(self) -> None:
        url = self.instance.url
        self.assert_refused(1, "'another' is not served here; served is 'demo'; is the address",
                            "--url", url, "--model", "another")
        self.assert_refused(1, "with 404", "--url", url + "/prefix")
        self.assert_refused(1, "with 400", "--url", url, "--chat", "--prompts",
                            self.file("x" * 100000))

    def file(self, text: str) -> str:
        path = self.directory / "prompts.txt"
        path.write_text(text + "\n", encoding="utf-8")
        return str(path)

    def test_keys(self) -> None:
        key = "sk-0123456789abcdef"
        with Instance(BIN, environment={"AFD_API_KEY": key}) as instance:
            self.assert_refused(1, "it wants a key: set AFD_API_KEY, or give --api-key", "--url",
                                instance.url)
            self.assert_refused(1, "it does not take this key", "--url", instance.url,
                                "--api-key", "sk-wrong")
            short = ("--url", instance.url, "--requests", "2", "--concurrency", "1",
                     "--max-tokens", "2")
            done = self.load(*short, environment={"AFD_API_KEY": key})
            self.assertEqual(done.returncode, 0, done.stderr)
            done = self.load(*short, "--api-key", key)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn(key, (self.out / "result.json").read_text(encoding="utf-8"))


class UnreachableTest(LoadTest):
    def test_addresses_that_are_wrong(self) -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
            self.assert_refused(5, "nobody listens at 127.0.0.1", "--url",
                                f"http://127.0.0.1:{port}")
        self.assert_refused(2, "https is not spoken here", "--url", "https://api.openai.com/v1")
        self.assert_refused(2, "does not begin with http://", "--url", "localhost:8000")
        self.assert_refused(2, "a port that is not 1 to 65535", "--url", "http://localhost:99999")
        self.assert_refused(5, "no address of the host", "--url", "http://nowhere.invalid:80")
        self.assert_refused(2, "name two ways", "--url", "http://localhost", "--socket", "/x")
        self.assert_refused(2, "are for HTTP", "--chat")

    def test_server_that_accepts_and_says_nothing(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            self.assert_refused(5, f'127.0.0.1:{port} was asked "GET /v1/models": no answer in '
                                "time; it hangs, or needs more than 300 ms (--request-timeout)",
                                "--url", f"http://127.0.0.1:{port}",
                                "--request-timeout", "300ms")

    def test_servers_that_speak_something_else(self) -> None:
        for models, message in (
                (whole(200, "<html>"), "lists no models at /v1/models"),
                (whole(200, {"data": []}), "lists no models at /v1/models"),
                (whole(500, "oh"), "with 500: oh"),
                ([b"SSH-2.0-OpenSSH_9.2\r\n", None], "the server's bytes are no HTTP"),
                ([None], "without an answer")):
            with HostileServer(lambda body: GOOD, models=models) as server:
                self.assert_refused(5, message, "--url", server.url)


class HostileTest(LoadTest):
    def test_good_answer_is_counted_by_its_usage(self) -> None:
        done, level = self.misbehave(stream(*texts("a", "bcd"), usage(3), event(DONE)))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(level["num_output_tokens"], 9)
        self.assertEqual(level["itl_us"]["count"], 6)
        self.assertEqual(level["num_guessed"], 0)

    def test_no_usage_is_a_guess_and_said_so(self) -> None:
        done, level = self.misbehave(stream(*texts("a", "b", "c"), event(DONE)))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual((level["num_output_tokens"], level["num_guessed"]), (9, 3))
        self.assertIn("tokens of 3 requests are guessed", done.stdout)

    def test_bytes_may_be_cut_anywhere(self) -> None:
        """Each byte is a chunk and a write of its own, also those of a character."""
        answer = b"".join(texts("\u20ac", "\U0001f642")) + usage(2) + event(DONE)
        done, level = self.misbehave(
            [STREAM_HEAD, *(chunk(bytes([byte])) for byte in answer), LAST_CHUNK])
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(level["num_output_tokens"], 6)

    def test_answers_that_are_not_whole(self) -> None:
        said = texts("a", "b", finish_reason=None)
        self.assert_failed(stream(*texts("a", "b"), usage(2)), "no end marker", "[DONE]")
        self.assert_failed(stream(*said, event(DONE)), "no finish reason", "finish_reason")
        self.assert_failed([STREAM_HEAD, chunk(said[0]), b"5\r\nda", None], "cut off",
                           "in the middle of its answer")
        self.assert_failed([None], "cut off", "without an answer")
        self.assert_failed(stream(*texts("", finish_reason="length"), event(DONE)), "data loss",
                           "finished without a token")

    def test_errors_in_band(self) -> None:
        error = event({"error": {"message": "the worker died", "code": 500}})
        self.assert_failed(stream(texts("a", "b")[0], error, event(DONE)), "error in band",
                           "the worker died")
        self.assert_failed(whole(200, {"error": {"message": "not today"}}), "no event stream",
                           "not today")

    def test_malformed_answers(self) -> None:
        self.assert_failed(stream(b"data: {\n\n", event(DONE)), "malformed answer", "no JSON")
        halves = [b'data: {"choices":[{"text":"\xe2\x82"}]}\n\n',
                  b'data: {"choices":[{"text":"\xac"}]}\n\n']
        self.assert_failed(stream(*halves, event(DONE)), "malformed answer", "in UTF-8")
        self.assert_failed([b"garbage\r\n\r\n", None], "malformed answer", "no HTTP")
        self.assert_failed([STREAM_HEAD, b"xyz\r\n", None], "malformed answer", "no HTTP")

    def test_refusals_by_their_status(self) -> None:
        full = {"error": {"message": "queue is full"}}
        self.assert_failed(whole(429, full, "Retry-After: 1\r\n"), "refused (HTTP 429)",
                           "queue is full")
        self.assert_failed(whole(503, "draining"), "refused (HTTP 503)", "draining")
        self.assert_failed(whole(500, {"error": "oops"}, "Connection: close\r\n") + [None],
                           "HTTP 500", "oops")

    def test_slow_answers_are_given_up(self) -> None:
        self.assert_failed([STREAM_HEAD, chunk(texts("a", "b")[0]), 60.0], "deadline exceeded",
                           "within 5000 ms", "--request-timeout", "5s")

    def test_each_kind_has_its_own_line(self) -> None:
        answers = iter([whole(429, "full"), stream(*texts("a"), event("[DONE"))] * 2 + [GOOD] * 9)
        with HostileServer(lambda body: next(answers)) as server:
            done = self.load("--url", server.url, "--requests", "6", "--concurrency", "1",
                             "--warmup", "0", "--max-failed", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall(r"\nfailed (\d): ([^,]*),", done.stdout),
                         [("2", "malformed answer"), ("2", "refused (HTTP 429)")])
        self.assertEqual(self.report()["levels"][0]["num_ok"], 2)

    def test_connections_are_used_again(self) -> None:
        # The end of the answer comes with that of its text, so that its connection is free then.
        answer = [*GOOD[:-2], GOOD[-2] + GOOD[-1]]
        with HostileServer(lambda body: answer) as server:
            self.load("--url", server.url, "--requests", "20", "--concurrency", "2")
            self.assertEqual(self.report()["levels"][0]["num_ok"], 20)
            # Three that inspect, two of the run.
            self.assertLessEqual(server.num_connections, 5)

    def test_server_that_closes_idle_connections_costs_no_request(self) -> None:
        with HostileServer(lambda body: [*GOOD, 0.01, None]) as server:
            done = self.load("--url", server.url, "--requests", "30", "--concurrency", "2",
                             "--warmup", "0")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.report()["levels"][0]["num_ok"], 30)

    def test_strict_server_is_asked_without_what_it_does_not_know(self) -> None:
        def strict(body: dict) -> list:
            extra = [name for name in ("return_token_ids", "stream_options") if name in body]
            return whole(400, {"error": {"message": f"unknown {extra[0]}"}}) if extra else GOOD

        with HostileServer(lambda body: stream(*texts("a", "b"), event(DONE)),
                           probe=strict) as server:
            done = self.load("--url", server.url, "--requests", "2", "--concurrency", "1")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertTrue(all("return_token_ids" not in body and "stream_options" not in body
                                for body in server.bodies))
        with HostileServer(lambda body: GOOD,
                           probe=lambda body: whole(400, "never")) as server:
            self.assert_refused(1, "with 400: never", "--url", server.url)


if __name__ == "__main__":
    unittest.main(verbosity=2)
