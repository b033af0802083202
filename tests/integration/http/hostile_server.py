# SPDX-License-Identifier: Apache-2.0
"""A server of the OpenAI API that misbehaves as told, for tests of clients; use as `with`."""

import json
import socketserver
import threading
import time
from collections.abc import Callable

STREAM_HEAD = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
               b"Transfer-Encoding: chunked\r\n\r\n")
DONE = "[DONE]"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = chunk(b"")


def event(data: dict | str) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def texts(*parts: str, finish_reason: str | None = "length") -> list[bytes]:
    """The events of a completion; the last has the reason why it ends."""
    reasons = [None] * (len(parts) - 1) + [finish_reason]
    return [event({"choices": [{"index": 0, "text": text, "finish_reason": reason}]})
            for text, reason in zip(parts, reasons, strict=True)]


def usage(completion_tokens: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": 2,
                                           "completion_tokens": completion_tokens}})


def stream(*events: bytes) -> list[bytes]:
    return [STREAM_HEAD, *map(chunk, events), LAST_CHUNK]


def whole(status: int, body: dict | str, headers: str = "") -> list[bytes]:
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    head = (f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n{headers}\r\n")
    return [head.encode() + data]


GOOD = stream(*texts("a", "b", "c"), usage(3), event(DONE))


class HostileServer:
    """`answer(body)` gives what is sent to a POST, in writes: bytes; a number waits so many
    seconds; None closes the connection. A probe, which asks for one token, gets `probe(body)`."""

    def __init__(self, answer: Callable[[dict], list], *,
                 probe: Callable[[dict], list] = lambda body: GOOD,
                 models: list | None = None) -> None:
        self.bodies: list[dict] = []
        self.num_connections = 0
        lock = threading.Lock()
        listing = models or whole(200, {"object": "list", "data": [{"id": "tiny", "root": "r",
                                                                     "max_model_len": 99}]})
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            disable_nagle_algorithm = True

            def handle(self) -> None:
                with lock:
                    outer.num_connections += 1
                try:
                    while self.serve():
                        pass
                except (ConnectionError, TimeoutError):
                    pass

            def serve(self) -> bool:
                line = self.rfile.readline()
                if not line:
                    return False
                length = 0
                while (header := self.rfile.readline().strip()):
                    name, _, value = header.decode().partition(":")
                    if name.lower() == "content-length":
                        length = int(value)
                if line.startswith(b"GET"):
                    return self.play(listing)
                body = json.loads(self.rfile.read(length))
                if body["max_tokens"] == 1:
                    return self.play(probe(body))
                with lock:
                    outer.bodies.append(body)
                return self.play(answer(body))

            def play(self, writes: list) -> bool:
                for write in writes:
                    if write is None:
                        return False
                    if isinstance(write, bytes):
                        self.wfile.write(write)
                    else:
                        time.sleep(write)
                return True

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128

        self.server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> "HostileServer":
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind, value, trace) -> None:
        self.server.shutdown()
        self.server.server_close()
