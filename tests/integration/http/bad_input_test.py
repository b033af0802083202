#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input over HTTP, against a real afdd.

    bad_input_test.py BIN_DIR [unittest arguments]

Goal: whatever bytes come, there is one defined answer, it has the form of an API error, and the
daemon goes on. Method: a table of bytes and one of bodies, each through a socket of its own.
Oracle: status, code, param, and whether the connection goes on; behind each, the same process
still answers.
"""

import json
import pathlib
import socket
import sys
import tempfile
import time
import unittest

from chat_model import make_chat_model
from instance import Instance, stopped

BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
PATIENCE_S = 60
HOST = b"Host: localhost\r\n"
GOOD = b"GET /live HTTP/1.1\r\n" + HOST + b"\r\n"


def post(body: bytes, path: bytes = b"/v1/completions", headers: bytes = b"") -> bytes:
    return (b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
            + headers + b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)


def chunked(body: bytes) -> bytes:
    return (b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + body)


# Name, bytes, status, code. Behind each the connection ends: nobody knows where the next request
# begins.
MALFORMED = [
    ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, None),
    ("zeros", bytes(64), 400, None),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, None),
    ("HTTP/0.9", b"GET /\r\n\r\n", 400, None),
    ("an unknown version", b"GET / HTTP/7.1\r\n" + HOST + b"\r\n", 505, None),
    ("no Host", b"GET / HTTP/1.1\r\n\r\n", 400, None),
    ("two Hosts", b"GET / HTTP/1.1\r\n" + HOST * 2 + b"\r\n", 400, None),
    ("a folded line", b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n c\r\n\r\n", 400, None),
    ("a space before the colon", b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400, None),
    ("a bare CR", b"GET / HTTP/1.1\r\n" + HOST + b"A: b\rC: d\r\n\r\n", 400, None),
    ("a zero in a header", b"GET / HTTP/1.1\r\n" + HOST + b"A: \0\r\n\r\n", 400, None),
    ("no colon", b"GET / HTTP/1.1\r\n" + HOST + b"nothing\r\n\r\n", 400, None),
    ("a zero in the target", b"GET /\0 HTTP/1.1\r\n" + HOST + b"\r\n", 400, None),
    ("length and chunks", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, None),
    ("another encoding", b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: identity\r\n\r\n"
     + GOOD, 501, None),
    ("two lengths", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n",
     400, None),
    ("a negative length", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", 400, None),
    ("a length of words", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1e3\r\n\r\n", 400, None),
    ("a length beyond 64 bits", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: "
     + b"9" * 30 + b"\r\n\r\n", 400, None),
    ("a length beyond the limit", b"POST / HTTP/1.1\r\n" + HOST
     + b"Content-Length: 9999999999\r\n\r\n", 413, "body_too_large"),
    ("a chunk that is no number", chunked(b"zz\r\nab\r\n0\r\n\r\n"), 400, None),
    ("a chunk beyond 64 bits", chunked(b"f" * 20 + b"\r\nab\r\n"), 400, None),
    ("a chunk beyond the limit", chunked(b"7fffffff\r\nab\r\n"), 413, "body_too_large"),
    ("a chunk that is longer than it says", chunked(b"1\r\nabc\r\n0\r\n\r\n"), 400, None),
    ("a long header", b"GET / HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 20000 + b"\r\n\r\n", 431,
     "header_too_large"),
    ("a long target", b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431,
     "header_too_large"),
    ("a thousand headers", b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 1000 + b"\r\n", 431,
     "header_too_large"),
    ("a trailer of 64 KiB", chunked(b"2\r\n{}\r\n0\r\nA: " + b"b" * 65534 + b"\r\n\r\n"), 431,
     "header_too_large"),
    ("a thousand trailers", chunked(b"2\r\n{}\r\n0\r\n" + b"A: b\r\n" * 1000 + b"\r\n"), 431,
     "header_too_large"),
    ("a long line of a chunk", chunked(b"2;a=" + b"b" * 20000 + b"\r\n{}\r\n0\r\n\r\n"), 431,
     "header_too_large"),
    # Half a request; its rest never comes.
    ("half a request line", b"GET /li", 408, "request_timeout"),
    ("LF only", b"GET /live HTTP/1.1\nHost: localhost\n\n", 408, "request_timeout"),
    ("half a body", post(b"{" * 50)[:-10], 408, "request_timeout"),
    ("half a chunk", chunked(b"5\r\nab"), 408, "request_timeout"),
]

# Whole requests that are HTTP, and wrong. Behind each the connection goes on.
REFUSED = [
    ("an unknown method", b"BREW /live HTTP/1.1\r\n" + HOST + b"\r\n", 405, "method_not_allowed"),
    ("a method in small letters", b"get /live HTTP/1.1\r\n" + HOST + b"\r\n", 405,
     "method_not_allowed"),
    ("an unknown path", b"GET /v2 HTTP/1.1\r\n" + HOST + b"\r\n", 404, "unknown_url"),
    ("a path that climbs", b"GET /../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n", 404, "unknown_url"),
    ("bytes in the path", b"GET /\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n", 404, "unknown_url"),
    ("another machine", b"GET /live HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403,
     "host_not_allowed"),
    ("another machine whose name begins like this one", b"GET /live HTTP/1.1\r\n"
     b"Host: 127.evil.example:8000\r\n\r\n", 403, "host_not_allowed"),
    ("a page of another site", b"GET /live HTTP/1.1\r\n" + HOST + b"Origin: http://evil.example\r\n"
     b"\r\n", 403, "origin_not_allowed"),
    ("a compressed body", post(b"{}", headers=b"Content-Encoding: gzip\r\n"), 415,
     "unsupported_media_type"),
    ("a body that is no JSON", post(b"{}").replace(b"application/json", b"text/plain"), 415,
     "unsupported_media_type"),
]

# Bodies of a completion: what is no JSON object.
NO_JSON = [
    b"", b" ", b"{", b"nul", b"[]", b"5", b'"a"', b'{"prompt":"a"} x', b"{'prompt':'a'}",
    b'{"prompt":"a",}', b'{"prompt":"a","prompt":"b"}', b'{"prompt":"\xff"}', b'{"prompt":"\xc3"}',
    b'{"prompt":"\xed\xa0\x80"}', b'{"prompt":"\\ud800"}', b'{"prompt":"a\nb"}', b'{"a":NaN}',
    b'{"a":01}', b'{"a":1e999}', b"[" * 100000, b'{"a":' * 50000, b"\0" * 100,
    b'\xef\xbb\xbf[]', b'{"a":"' + b"b" * 100000,
]

# Field, wrong values; `param` is the field.
WRONG = [
    ("prompt", [5, True, {}, [], [[]], ["a", 1], [1, "a"], [1.5], [-1], [2**40], [[1], "a", 5],
                [[[1]]], 1e300, ["a"] * 257]),
    ("model", [5, []]),
    ("max_tokens", [0, -1, 1.5, "5", 2**31, 2**63, 2**64, 1e308, True, []]),
    ("temperature", ["hot", -0.1, 2.1, 1e39, -1e308, []]),
    ("top_p", [0, -1, 1.1, 1e39, "x"]),
    ("top_k", [-2, 2**40, 1.5, "x"]),
    ("min_p", [-0.1, 1.1, "x"]),
    ("seed", [2**64, -2**63 - 1, 1.5, "x"]),
    ("n", [0, -1, 17, 10**9, 1.5, "x"]),
    ("stop", [5, {}, [5], ["a", None], ["x"] * 17, ["x"] * 10000, "y" * 300, [""], "\0" * 1000]),
    ("stop_token_ids", [5, ["a"], [-1], [2**40], [5] * 10000, [10**6]]),
    ("min_tokens", [-1, 1.5, "x", 2**40, 100]),
    ("ignore_eos", [1, "true"]),
    ("timeout_ms", [-1, 1.5, "x", 2**40]),
    ("presence_penalty", [-2.1, 2.1, 1e39, "x"]),
    ("frequency_penalty", [-2.1, 2.1, 1e39, "x"]),
    ("repetition_penalty", [0, -1, 101, 1e39, "x"]),
    ("logit_bias", [5, [], {"a": 1}, {"-1": 1}, {"1": "a"}, {"1": 101}, {"1": 1e39}, {"99999": 1},
                    {str(i): 1 for i in range(1500)}, {"1.5": 1}, {"": 1}]),
    ("logprobs", [-1, 21, 1.5, "x", True]),
    ("echo", [1, "true"]),
    ("stream", [1, "yes"]),
    ("stream_options", [{"include_usage": True}]),
    ("return_token_ids", [1]),
    ("skip_special_tokens", ["no"]),
]

USER = {"role": "user", "content": "Hello"}
# Whole fields of a chat, and the param of the error.
WRONG_CHATS = [
    ({"messages": None}, "messages"), ({"messages": []}, "messages"), ({"messages": "a"}, "messages"),
    ({"messages": [5]}, "messages[0]"), ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"role": 5}]}, "messages[0].role"),
    ({"messages": [USER, {"role": "king", "content": "a"}]}, "messages[1].role"),
    ({"messages": [{"role": "user", "content": {"a": 1}}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [5]}]}, "messages[0].content[0]"),
    ({"messages": [USER] * 20000}, "messages"),
    ({"tools": 5}, "tools"), ({"tools": [{"type": 5}]}, "tools[0].type"),
    *(({"tools": [{"type": "function", "function": function}], "tool_choice": choice},
       "tools[0].function")
      for function in (None, 5, {}, {"name": None}, {"name": 5}, {"name": ["f"]}, {"name": ""})
      for choice in ("auto", "required", {"type": "function", "function": {"name": "f"}})),
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
]


class Wire:
    """A connection, and the answers on it."""

    def __init__(self, instance: Instance) -> None:
        self.socket = socket.create_connection((instance.host, instance.port), PATIENCE_S)
        self.received = b""

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # It was refused before its end.

    def answer(self) -> tuple[int, dict, bytes]:
        """The next answer, which has a length."""
        while b"\r\n\r\n" not in self.received:
            self.more()
        head, _, rest = self.received.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in
                   (line.split(": ", 1) for line in lines[1:])}
        length = int(headers["content-length"])
        while len(rest) < length:
            self.received = b""
            self.more()
            rest += self.received
        self.received = rest[length:]
        return int(lines[0].split(" ")[1]), headers, rest[:length]

    def more(self) -> None:
        part = self.socket.recv(65536)
        if not part:
            raise EOFError(self.received)
        self.received += part

    def is_over(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True  # What was sent behind the refused bytes was not read.


class BadInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        directory = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="afd-chat-"))
        make_chat_model(pathlib.Path(directory))
        cls.instance = cls.enterClassContext(Instance(
            BIN, "--model", directory, "--input-timeout-ms", "300", "--stop-timeout-ms", "0",
            "--hang-timeout-ms", "0"))
        cls.pids = cls.pids_of()

    @classmethod
    def pids_of(cls) -> list[int]:
        status = cls.instance.ctl("status")
        return [status["pid"], *(worker["pid"] for worker in status["workers"])]

    def tearDown(self) -> None:
        self.assertEqual(self.pids_of(), self.pids, "nobody died of it")
        self.assertEqual(self.instance.ctl("status").get("num_running", 0), 0)
        self.assertEqual(self.instance.ask("GET", "/ready")[0], 200)

    def expect_error(self, answer: tuple[int, dict, bytes], status: int, code: str | None,
                     param: str | None = None) -> None:
        self.assertEqual(answer[0], status, answer)
        self.assertEqual(answer[1]["content-type"], "application/json")
        self.assertIn("x-request-id", answer[1])
        error = json.loads(answer[2])["error"]
        self.assertEqual(sorted(error), ["code", "message", "param", "type"])
        self.assertEqual((error["code"], error["param"]), (code, param), error)
        self.assertEqual(error["type"],
                         "invalid_request_error" if status < 500 else "server_error")
        self.assertGreater(len(error["message"]), 10)
        self.assertLess(len(error["message"]), 1000, "what a client sent is not sent back whole")

    def test_malformed_http(self) -> None:
        for name, data, status, code in MALFORMED:
            with self.subTest(name), Wire(self.instance) as wire:
                wire.send(data)
                self.expect_error(wire.answer(), status, code)
                self.assertTrue(wire.is_over())

    def test_whole_requests_that_are_wrong(self) -> None:
        for name, data, status, code in REFUSED:
            with self.subTest(name), Wire(self.instance) as wire:
                wire.send(data + GOOD)
                self.expect_error(wire.answer(), status, code)
                self.assertEqual(wire.answer()[0], 200, "the connection goes on")

    def test_bodies_that_are_no_json(self) -> None:
        with Wire(self.instance) as wire:
            for path in (b"/v1/completions", b"/v1/chat/completions", b"/tokenize", b"/detokenize"):
                for body in NO_JSON:
                    with self.subTest((path, body[:40])):
                        wire.send(post(body, path))
                        self.expect_error(wire.answer(), 400, "invalid_json")

    def test_wrong_values_of_every_field(self) -> None:
        with Wire(self.instance) as wire:
            for field, values in WRONG:
                for value in values:
                    body = {"prompt": "a", "max_tokens": 2, field: value}
                    with self.subTest((field, str(value)[:40])):
                        wire.send(post(json.dumps(body).encode()))
                        self.expect_error(wire.answer(), 400, None, field)
            wire.send(post(json.dumps({"prompt": "a", "model": "x"}).encode()))
            self.expect_error(wire.answer(), 404, "model_not_found", "model")

    def test_wrong_chats(self) -> None:
        with Wire(self.instance) as wire:
            for fields, param in WRONG_CHATS:
                body = {"messages": [USER], "max_tokens": 2, **fields}
                with self.subTest(str(fields)[:60]):
                    wire.send(post(json.dumps(body).encode(), b"/v1/chat/completions"))
                    status, headers, answer = wire.answer()
                    code = json.loads(answer)["error"]["code"]
                    self.assertIn(code, (None, "context_length_exceeded"))
                    self.expect_error((status, headers, answer), 400, code, param)

    def test_wrong_ids_and_texts_of_the_tokenizer(self) -> None:
        with Wire(self.instance) as wire:
            for path, body, param in (
                    (b"/tokenize", {}, "prompt"), (b"/tokenize", {"prompt": 5}, "prompt"),
                    (b"/tokenize", {"prompt": ["a"]}, "prompt"),
                    (b"/detokenize", {}, "tokens"), (b"/detokenize", {"tokens": "a"}, "tokens"),
                    (b"/detokenize", {"tokens": [-1]}, "tokens"),
                    (b"/detokenize", {"tokens": [10**6]}, "tokens"),
                    (b"/detokenize", {"tokens": [5] * 100000}, "tokens")):
                with self.subTest((path, str(body)[:40])):
                    wire.send(post(json.dumps(body).encode(), path))
                    self.expect_error(wire.answer(), 400, None, param)

    def test_slow_bytes_have_one_timeout_for_all(self) -> None:
        """Each byte in time, and the request never whole: they do not start the time anew."""
        for data in (GOOD, post(b'{"prompt":"a"}')):
            with Wire(self.instance) as wire:
                wire.socket.settimeout(0.05)
                begin = time.monotonic()
                sent = 0
                while not wire.received and time.monotonic() - begin < PATIENCE_S:
                    wire.send(data[sent:sent + 1] if sent < len(data) - 2 else b"")
                    sent += 1
                    try:
                        wire.more()
                    except TimeoutError:
                        pass
                wire.socket.settimeout(PATIENCE_S)
                self.expect_error(wire.answer(), 408, "request_timeout")

    def test_body_that_is_too_large_is_refused_on_the_way(self) -> None:
        """Also in chunks, where nothing announces it; what comes behind is not read. Here it may
        come slowly."""
        with Instance(BIN) as instance, Wire(instance) as wire:
            wire.send(chunked(b"") + 100 * (b"10000\r\n" + b" " * 0x10000 + b"\r\n"))
            self.expect_error(wire.answer(), 413, "body_too_large")
            self.assertTrue(wire.is_over())

    def test_half_closed_connections(self) -> None:
        """Who closes its side has gone: a whole request that is answered at once is, others end."""
        with Wire(self.instance) as wire:
            wire.send(GOOD)
            self.assertEqual(wire.answer()[0], 200)
            wire.socket.shutdown(socket.SHUT_WR)
            self.assertTrue(wire.is_over())
        for half in (b"", b"GET", post(b'{"prompt":"a"}')[:-3]):
            with Wire(self.instance) as wire:
                wire.send(half)
                wire.socket.shutdown(socket.SHUT_WR)
                self.assertTrue(wire.is_over())

    def test_half_closed_stream_ends(self) -> None:
        """Before its end, to which nothing comes while the experts rest."""
        experts = self.instance.pids_of("ffn")
        deadline = time.monotonic() + PATIENCE_S
        has_run = False
        while not has_run:
            with Wire(self.instance) as wire:
                wire.send(post(b'{"prompt":"a","max_tokens":900,"ignore_eos":true,"stream":true}'))
                wire.more()
                with stopped(experts):
                    has_run = self.instance.ctl("status").get("num_running", 0) > 0
                    wire.socket.shutdown(socket.SHUT_WR)
                    while self.instance.ctl("status").get("num_running", 0) > 0:
                        self.assertLess(time.monotonic(), deadline)
                        time.sleep(0.02)
                    while not wire.is_over():
                        pass
            self.assertLess(time.monotonic(), deadline, "all were whole before")

    def test_pipelined_requests_are_answered_in_their_order(self) -> None:
        with Wire(self.instance) as wire:
            expected = []
            data = b""
            for i in range(60):
                if i % 3 == 0:
                    data += GOOD
                elif i % 3 == 1:
                    data += post(b'{"tokens":[%d]}' % (40 + i), b"/detokenize")
                else:
                    data += post(b'{"prompt":[%d],"max_tokens":1}' % (40 + i))
                expected.append(200)
            wire.send(data + post(b"{") + GOOD + b"no HTTP\r\n\r\n" + GOOD)
            self.assertEqual([wire.answer()[0] for _ in expected], expected)
            self.expect_error(wire.answer(), 400, "invalid_json")
            self.assertEqual(wire.answer()[0], 200)
            self.expect_error(wire.answer(), 400, None)
            self.assertTrue(wire.is_over())

    def test_what_is_odd_and_allowed(self) -> None:
        """The other side of the table: strange requests that must be served."""
        for name, data in (
                ("empty lines before", b"\r\n\r\n" + GOOD),
                ("a query", GOOD.replace(b"/live", b"/live?a=%00&b")),
                ("white space around values", b"GET /live HTTP/1.1\r\nHost:\t localhost \t\r\n\r\n"),
                ("chunks with extensions", chunked(b'E;a=b\r\n{"prompt":"a"}\r\n0\r\nA: b\r\n\r\n')),
                ("a zero in the text", post(b'{"prompt":"a\\u0000b","max_tokens":1}')),
                ("escaped surrogates", post(b'{"prompt":"\\ud83d\\ude42","max_tokens":1}')),
                ("empty text of a tokenizer", post(b'{"prompt":""}', b"/tokenize")),
                ("fields that nobody knows", post(json.dumps(
                    {"prompt": "a", "max_tokens": 1, **{f"x{i}\n": i for i in range(2000)}})
                    .encode()))):
            with self.subTest(name), Wire(self.instance) as wire:
                wire.send(data)
                status, _, body = wire.answer()
                self.assertEqual(status, 200, body)


if __name__ == "__main__":
    unittest.main(verbosity=2)
