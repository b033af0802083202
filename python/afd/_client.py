# SPDX-License-Identifier: Apache-2.0
"""afd.Client: generate, stream and status over the socket of a running afdd (proto/client.proto)."""
import contextlib
import numbers
import operator
import os
import re
import reprlib
import select
import socket
import stat
import time
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

from afd._errors import (DeadlineExceeded, Error, FailedPrecondition, InvalidArgument, NotFound,
                         Unavailable, error_of)
from afd._messages import (FRAME_BYTES_MAX, Frames, connect_within, limit_sends, messages,
                           pack)

_FINISH_REASONS = {1: "stop", 2: "length", 3: "cancelled"}
_POLL_MS_MAX = 2 ** 31 - 1  # poll() takes no more.
_TIMEOUT_S_MAX = 10 ** 9  # A socket takes up to 2^63 ns.


Top = list[tuple[int, float]]  # The most likely tokens in one place, with their logprobs.


class Generation(NamedTuple):
    """One generation to its end; lists that were not asked for are empty."""
    text: str
    token_ids: list[int]
    logprobs: list[float]
    prompt_ids: list[int]
    prompt_logprobs: list[float]
    seed: int
    finish_reason: str  # "stop", "length" or "cancelled"
    num_prompt_tokens: int
    num_output_tokens: int
    queue_us: int
    first_token_us: int
    total_us: int
    top_logprobs: Sequence[Top] = ()  # Of each token.
    prompt_top_logprobs: Sequence[Top] = ()  # Of each of prompt_logprobs.
    num_cached_tokens: int = 0  # Of the prompt, from the prefix cache.
    matched_stop: str | int | None = None  # The stop text or token id that ended it, of the request.


class Chunk(NamedTuple):
    """One part of a stream, as it comes."""
    text: str
    token_ids: list[int]
    logprobs: list[float]
    num_tokens: int
    top_logprobs: Sequence[Top] = ()


def socket_path(instance: str = "default") -> str:
    """Where an instance of this user listens. Errors: NotFound, InvalidArgument."""
    if not re.fullmatch("[a-z0-9_]{1,32}", instance):
        raise InvalidArgument(f"instance is {instance!r}; allowed are 1 to 32 of a-z, 0-9 and '_'",
                              "instance")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = f"{runtime}/afd" if runtime else f"/tmp/afd-{os.getuid()}"
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        raise NotFound(f"there is no folder {folder}; start afdd, or set XDG_RUNTIME_DIR as it "
                       "has it", "instance") from None
    # In /tmp anybody can make it first.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o77:
        raise InvalidArgument(f"{folder} must be a folder of this user with mode 0700, so that "
                              "nobody else can put a socket there", "instance")
    return f"{folder}/{instance}.sock"


class Client:
    """A connection to a running afdd; one request at a time, one thread at a time.

        with afd.Client() as client:
            print(client.generate("Once upon a time", max_tokens=64).text)
            for chunk in client.stream("Once upon a time"):
                print(chunk.text, end="", flush=True)

    `timeout`: seconds for a whole request, above 0. A generation whose next chunk is not here by
    then is cancelled, however steadily it comes. The connection outlives what came too late.
    """

    def __init__(self, instance: str = "default", *, path: str | None = None,
                 timeout: float = 600.0):
        self._messages = messages("client", "Request", "Response")
        self.timeout = timeout
        self.resume_id = ""  # Of the generation that was accepted last; empty: not resumable.
        self._next_id = 1
        self._open_id = 0  # Of the stream or the change that is being read; 0: none.
        self._open_text = ""  # What it is, and what to do about it.
        self._closed = False
        self._frames = Frames()
        where = path or socket_path(instance)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connect_within(self._socket, where, self.timeout)
            limit_sends(self._socket, 0)
        except BlockingIOError:
            self.close()
            raise DeadlineExceeded(f"cannot reach afdd at {where}: it has not accepted the "
                                   "connection in time; afdd hangs or is stopped, see its "
                                   "log") from None
        except OSError as error:
            self.close()
            raise Unavailable(f"no afdd answers at {where}: {error.strerror or error}; is it "
                              "running?", "instance") from error

    @property
    def timeout(self) -> float:
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        if not isinstance(seconds, numbers.Real) or not 0 < seconds <= _TIMEOUT_S_MAX:
            raise InvalidArgument(f"timeout is {reprlib.repr(seconds)}; it must be a number of "
                                  f"seconds above 0 and at most {_TIMEOUT_S_MAX}", "timeout")
        self._timeout = float(seconds)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_unused) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and with it what is being generated for it and not resumable."""
        self._closed = True
        self._socket.close()

    def generate(self, prompt, **settings) -> Generation:
        """The whole of a generation; settings as of stream()."""
        return self._gather(self.stream(prompt, **settings))

    def resume(self, resume_id: str, *, received: int = 0) -> Generation:
        """The rest of a generation; see resume_stream()."""
        return self._gather(self.resume_stream(resume_id, received=received))

    def resume_stream(self, resume_id: str, *, received: int = 0) -> Iterator[Chunk]:
        """Goes on with a resumable generation whose connection broke, behind `received` chunks.

        A connection that still has it loses it. Errors: NotFound, if afdd knows it no longer.
        """
        request = self._request()
        with _judged("resume_id", resume_id):
            request.resume.id = resume_id
        with _judged("received", received):
            request.resume.received_chunks = received
        return self._follow(request)

    def _gather(self, stream) -> Generation:
        parts: dict[str, Any] = {"text": [], "token_ids": [], "logprobs": [], "top_logprobs": []}
        while True:
            try:
                chunk = next(stream)
            except StopIteration as end:
                finished, accepted, prompt_logprobs, prompt_top_logprobs = end.value
                break
            parts["text"].append(chunk.text)
            parts["token_ids"] += chunk.token_ids
            parts["logprobs"] += chunk.logprobs
            parts["top_logprobs"] += chunk.top_logprobs
        return Generation("".join(parts["text"]), parts["token_ids"], parts["logprobs"],
                          list(accepted.prompt_ids), prompt_logprobs, accepted.seed,
                          _FINISH_REASONS.get(finished.reason, "unknown"),
                          finished.num_prompt_tokens, finished.num_output_tokens,
                          finished.queue_us, finished.first_token_us, finished.total_us,
                          parts["top_logprobs"], prompt_top_logprobs, finished.num_cached_tokens,
                          _matched_stop(finished))

    def stream(self, prompt, *, max_tokens: int = 0, min_tokens: int = 0, stop=(),
               stop_token_ids: Iterable[int] = (), include_stop_str_in_output: bool = False,
               keep_special_tokens: bool = False, return_token_ids: bool = False,
               return_logprobs: bool = False, prompt_logprobs: bool = False,
               top_logprobs: int = 0, ignore_eos: bool = False, timeout_ms: int = 0,
               resumable: float = 0.0, **sampling) -> Iterator[Chunk]:
        """The chunks of a generation as they come; closing the iterator cancels it. The request is
        sent, and its timeout begins, with the first next().

        `prompt`: text, bytes or token ids. `max_tokens` 0: as many as afdd allows. `stop`: a text
        that ends it, or several; what these and the next settings do is said at their fields of
        Generate in proto/client.proto. `resumable`: seconds for which it goes on if the
        connection breaks; self.resume_id, set before the first chunk, is what another connection
        gives to resume(). `sampling`: the fields of SamplingSettings in proto/sampling.proto
        (temperature, top_k, top_p, seed, ...); response_format as {"json_object": True} or
        {"json_schema": "..."}.
        """
        request = self._request()
        body = request.generate
        with _judged("prompt", prompt):
            if isinstance(prompt, (str, bytes)):
                body.text = prompt.encode() if isinstance(prompt, str) else prompt
            else:
                body.token_ids.ids.extend(_token_ids(prompt))
        for name, value in (("max_tokens", max_tokens), ("min_tokens", min_tokens),
                            ("include_stop_str_in_output", include_stop_str_in_output),
                            ("keep_special_tokens", keep_special_tokens),
                            ("return_token_ids", return_token_ids), ("ignore_eos", ignore_eos),
                            ("return_logprobs", return_logprobs),
                            ("prompt_logprobs", prompt_logprobs),
                            ("top_logprobs", top_logprobs), ("timeout_ms", timeout_ms)):
            with _judged(name, value):
                setattr(body, name, value)
        with _judged("stop", stop):
            texts = [stop] if isinstance(stop, (str, bytes)) else stop
            body.stop.extend(text.encode() if isinstance(text, str) else text for text in texts)
        with _judged("stop_token_ids", stop_token_ids):
            body.stop_token_ids.extend(_token_ids(stop_token_ids))
        with _judged("resumable", resumable):
            body.resumable_ms = round(resumable * 1000)
        _set_sampling(body.sampling, sampling)
        return self._follow(request)

    def status(self) -> dict[str, Any]:
        """The instance and its workers; the fields of Status in proto/client.proto."""
        request = self._request()
        request.status.SetInParent()
        self._send(request)
        answer = self._answer(request.request_id, time.monotonic() + self.timeout)
        if answer is None:
            raise DeadlineExceeded(f"afdd gave no answer within {self.timeout:g} s; it has much to "
                                   "do, hangs or is stopped: wait longer, or see its log")
        return _plain(answer.status)

    def resize(self, *, attention_workers: int = 0, ffn_workers: int = 0,
               stop_first: bool = False,
               on_progress: Callable[[str], Any] | None = None) -> dict[str, Any]:
        """Other numbers of workers while requests run; 0: as many as now.

        Blocks until it has ended; `on_progress` gets a line about each step. `stop_first`: without
        the memory of both crews, but requests stand still. Returns the fields of Resized in
        proto/client.proto. Errors: those of Resize there; after each the old workers serve on. The
        timeout ends the wait and not the resize.
        """
        request = self._request()
        for name, value in (("attention_workers", attention_workers),
                            ("ffn_workers", ffn_workers), ("stop_first", stop_first)):
            with _judged(name, value):
                setattr(request.resize, name, value)
        request.resize.SetInParent()
        return self._change(request, on_progress)

    def upgrade(self, *, on_progress: Callable[[str], Any] | None = None) -> dict[str, Any]:
        """Another afdd in the place of this one, from the program file that it was started from.

        As resize(); returns the fields of Upgraded. The connection goes on with the new afdd.
        """
        request = self._request()
        request.upgrade.SetInParent()
        return self._change(request, on_progress)

    def _change(self, request, on_progress) -> dict[str, Any]:
        self._send(request)
        self._open(request)
        deadline = time.monotonic() + self.timeout
        try:
            while (answer := self._answer(request.request_id, deadline)) is not None:
                kind = answer.WhichOneof("body")
                if kind != "progress":
                    return _plain(getattr(answer, kind))
                if on_progress is not None:
                    on_progress(answer.progress.text)
        finally:
            self._open_id = 0
        raise DeadlineExceeded(f"the {request.WhichOneof('body')} has not ended after "
                               f"{self.timeout:g} s; it goes on (status(), afdctl status)")

    def _request(self):
        request = self._messages["Request"](request_id=self._next_id)
        self._next_id += 1
        return request

    def _open(self, request) -> None:
        """Refuses other requests until _open_id is 0 again: they would drop its answers."""
        kind = request.WhichOneof("body")
        self._open_id = request.request_id
        self._open_text = (
            "a resize or upgrade of this client runs, and a client has one request at a time; take "
            "another client" if kind in ("resize", "upgrade") else
            "a stream of this client is open, and a client has one request at a time; read it to "
            "its end, close() it, or take another client")

    def _follow(self, request):
        self._send(request)
        self._open(request)
        deadline = time.monotonic() + self.timeout
        accepted, num_tokens, is_over = None, 0, False
        prompt_logprobs, prompt_top_logprobs = [], []
        try:
            while (answer := self._answer(request.request_id, deadline)) is not None:
                kind = answer.WhichOneof("body")
                if (kind == "accepted") != (accepted is None):
                    raise Error(f"afdd's answers do not fit together: {kind} "
                                f"{'again' if accepted else 'before accepted'}")
                if kind == "accepted":
                    accepted = answer.accepted
                    self.resume_id = accepted.resume_id
                    num_tokens = accepted.num_received_tokens
                elif kind == "chunk":
                    num_tokens += answer.chunk.num_tokens
                    prompt_logprobs += answer.chunk.prompt_logprobs
                    prompt_top_logprobs += _tops(answer.chunk.prompt_top_logprobs)
                    yield Chunk(answer.chunk.text, list(answer.chunk.token_ids),
                                list(answer.chunk.logprobs), answer.chunk.num_tokens,
                                _tops(answer.chunk.top_logprobs))
                elif kind == "finished":
                    is_over = True
                    _check_count(answer.finished, num_tokens)
                    return answer.finished, accepted, prompt_logprobs, prompt_top_logprobs
            self._open_id = 0
            self._send_cancel(request.request_id)
            raise DeadlineExceeded(
                f"the generation had not ended after {self.timeout:g} s ({num_tokens} tokens "
                "came) and was cancelled; allow more time (timeout) or fewer tokens (max_tokens)")
        except Error:
            is_over = True
            raise
        finally:
            self._open_id = 0
            if not is_over and not self._closed:
                self._cancel(request.request_id)

    def _cancel(self, target: int) -> None:
        """Ends a generation and takes what is still coming of it.

        Raises no Error: what made the caller give up is told, not what came of that.
        """
        deadline = time.monotonic() + min(self.timeout, 10.0)
        try:
            self._send_cancel(target)
            while (answer := self._answer(target, deadline)) is not None:
                if answer.WhichOneof("body") == "finished":
                    return
        except Error:
            pass  # It ended by itself, or with the connection, which the next request finds out.

    def _send_cancel(self, target: int) -> None:
        request = self._request()
        request.cancel.target = target
        self._send(request)

    def _send(self, request) -> None:
        if self._open_id:
            raise FailedPrecondition(self._open_text)
        data = request.SerializeToString()
        if len(data) > FRAME_BYTES_MAX:
            raise InvalidArgument(f"a request of {len(data)} bytes; afdd takes at most "
                                  f"{FRAME_BYTES_MAX}; shorten the prompt", "prompt")
        try:
            with self._in_step():
                self._socket.settimeout(self.timeout)
                self._socket.sendall(pack(data))
        except OSError as error:
            raise Unavailable(f"the connection to afdd is gone: {error}") from error

    def _answer(self, request_id: int, deadline: float):
        """The next answer to that request; None: none came in time.

        Those to others are dropped: these were given up, since there is one at a time.
        """
        while True:
            while (frame := self._next_frame()) is None:
                if not self._receive(deadline):
                    return None
            answer = self._messages["Response"].FromString(frame)
            if answer.request_id not in (0, request_id):
                continue
            if answer.WhichOneof("body") == "error":
                raise error_of(answer.error.code, answer.error.message)
            return answer

    def _next_frame(self) -> bytes | None:
        with self._in_step():
            return self._frames.next()

    def _receive(self, deadline: float) -> bool:
        """Waits for bytes of an answer and keeps them; False: none came in time."""
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            left_ms = max(deadline - time.monotonic(), 0.001) * 1000
            is_readable = bool(poll.poll(min(left_ms, _POLL_MS_MAX)))
            if is_readable:
                with self._in_step():
                    received = self._socket.recv(1 << 16)
                    self._frames.feed(received)
        except (OSError, ValueError) as error:  # ValueError: it is closed.
            raise Unavailable(f"the connection to afdd is gone: {error}") from error
        if not is_readable:
            return left_ms > _POLL_MS_MAX  # The wait goes on, or is over.
        if not received:
            raise Unavailable("afdd closed the connection before all answers came; it was "
                              "stopped or has crashed, see its log")
        return True

    @contextlib.contextmanager
    def _in_step(self):
        """Closes the connection if what is inside is interrupted: nobody knows where it stands."""
        try:
            yield
        except BaseException:
            self.close()
            raise


@contextlib.contextmanager
def _judged(name: str, value: Any):
    """Whatever is wrong with the value is an error of the argument."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"{name} is {reprlib.repr(value)}: {error}", name) from error


def _token_ids(given: Iterable[Any]) -> Iterator[int]:
    """Whole numbers of any library; a bool, which Python takes for one, is a mistake."""
    for token in given:
        if isinstance(token, bool):
            raise TypeError("a bool is no token id")
        yield operator.index(token)


def _tops(places) -> list[Top]:
    return [list(zip(place.token_ids, place.logprobs)) for place in places]


def _matched_stop(finished) -> str | int | None:
    kind = finished.WhichOneof("matched")
    if kind == "matched_stop":
        return finished.matched_stop.decode(errors="replace")
    return finished.matched_stop_token_id if kind else None


def _check_count(finished, num_tokens: int) -> None:
    if finished.num_output_tokens != num_tokens:
        raise Error(f"afdd's answers do not fit together: chunks with {num_tokens} tokens, but "
                    f"finished after {finished.num_output_tokens}")


def _is_repeated(field) -> bool:
    if hasattr(field, "is_repeated"):
        return field.is_repeated
    return field.label == 3  # LABEL_REPEATED. Protobuf 7 has no labels any more.


def _plain(value: Any) -> Any:
    """A message as a dict, a list of them as a list; defaults included."""
    if not hasattr(value, "DESCRIPTOR"):
        return value
    return {field.name: ([_plain(each) for each in getattr(value, field.name)]
                         if _is_repeated(field) else _plain(getattr(value, field.name)))
            for field in value.DESCRIPTOR.fields}


def _as_bytes(message, given: dict) -> dict:
    """`given` with texts as UTF-8 where the fields of the message are bytes."""
    names = {field.name for field in message.DESCRIPTOR.fields
             if field.type == field.TYPE_BYTES}
    return {name: value.encode() if name in names and isinstance(value, str) else value
            for name, value in given.items()}


def _set_sampling(message, given: dict) -> None:
    fields = {field.name: field for field in message.DESCRIPTOR.fields}
    for name, value in given.items():
        if name not in fields:
            raise InvalidArgument(f"there is no setting {name}; there are "
                                  f"{', '.join(sorted(fields))}", name)
        with _judged(name, value):
            if _is_repeated(fields[name]):
                target = getattr(message, name)
                is_message = fields[name].message_type is not None
                for each in value:
                    if is_message and isinstance(each, dict):
                        target.add(**each)
                    else:
                        target.append(each)
            elif isinstance(value, dict):
                target = getattr(message, name)
                target.CopyFrom(type(target)(**_as_bytes(target, value)))
            else:
                setattr(message, name, value)
