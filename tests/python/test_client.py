# SPDX-License-Identifier: Apache-2.0
"""afd.Client against a server of a few lines that answers by script.

What a real afdd answers is the business of tests/integration; here: what is sent, how streams end,
and what every failure becomes. Oracle: the script.
"""
import signal
import socket
import struct
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import afd
from afd._client import _is_repeated
from afd._messages import messages


class Server:
    """Accepts one connection; `answer(request)` yields the responses to each request."""

    def __init__(self, path, answer):
        self.messages = messages("client", "Request", "Response")
        self.requests = []
        self.answer = answer
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(1)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        connection, _ = self.listener.accept()
        with connection:
            stream = connection.makefile("rb")
            while len(header := stream.read(4)) == 4:
                request = self.messages["Request"].FromString(
                    stream.read(struct.unpack("<I", header)[0]))
                self.requests.append(request)
                for fields in self.answer(request):
                    if isinstance(fields, bytes):
                        connection.sendall(fields)
                    elif fields is None:
                        return
                    else:
                        data = self.messages["Response"](
                            **{"request_id": request.request_id, **fields}).SerializeToString()
                        connection.sendall(struct.pack("<I", len(data)) + data)


@pytest.fixture
def serve(tmp_path):
    made = []

    def start(answer, timeout=60.0):
        path = str(tmp_path / "afd.sock")
        made.append(Server(path, answer))
        return afd.Client(path=path, timeout=timeout), made[-1]
    yield start
    for server in made:
        server.listener.close()


def three_chunks(request):
    if request.WhichOneof("body") == "generate":
        yield {"accepted": {"seed": 7, "prompt_ids": [1, 2], "num_prompt_tokens": 2}}
        for index, text in enumerate(("ein", "mal", "!")):
            yield {"chunk": {"text": text, "token_ids": [10 + index], "logprobs": [-0.5],
                             "num_tokens": 1}}
        yield {"finished": {"reason": 2, "num_prompt_tokens": 2, "num_output_tokens": 3,
                            "queue_us": 4, "first_token_us": 5, "total_us": 6}}
    else:
        yield {"status": {"instance": "default", "workers": [{"role": "ffn", "index": 1}],
                          "num_finished": 2 ** 40}}


def test_generate_sends_the_settings_and_gathers_the_answer(serve):
    client, server = serve(three_chunks)
    with client:
        done = client.generate("Es war", max_tokens=3, temperature=0.5, seed=7,
                               return_token_ids=True, return_logprobs=True)
    assert (done.text, done.token_ids, done.prompt_ids, done.seed) == (
        "einmal!", [10, 11, 12], [1, 2], 7)
    assert (done.logprobs, done.finish_reason) == ([-0.5] * 3, "length")
    assert (done.num_prompt_tokens, done.num_output_tokens, done.queue_us, done.first_token_us,
            done.total_us) == (2, 3, 4, 5, 6)
    assert (done.top_logprobs, done.prompt_top_logprobs, done.num_cached_tokens,
            done.matched_stop) == ([], [], 0, None)
    sent = server.requests[0].generate
    assert (sent.text, sent.max_tokens, sent.return_token_ids, sent.ignore_eos) == (
        b"Es war", 3, True, False)
    assert (sent.sampling.temperature, sent.sampling.seed) == (0.5, 7)


# Goal: what the socket tells of a generation is in Python, too. Oracle: the script.
@pytest.mark.parametrize("matched, stop", [({}, None), ({"matched_stop": "\u00e4".encode()}, "\u00e4"),
                                           ({"matched_stop_token_id": 0}, 0)])
def test_the_likeliest_tokens_the_cache_and_the_stop_are_told(serve, matched, stop):
    def answer(_request):
        yield {"accepted": {"num_prompt_tokens": 3}}
        yield {"chunk": {"prompt_logprobs": [-1, -2], "prompt_top_logprobs": [
            {"token_ids": [4, 5], "logprobs": [-0.25, -4]}, {"token_ids": [6], "logprobs": [-0.5]}]}}
        for token in (7, 8):
            yield {"chunk": {"text": "a", "num_tokens": 1, "top_logprobs": [
                {"token_ids": [token, 9], "logprobs": [-0.5, -1]}]}}
        yield {"finished": {"reason": 1, "num_output_tokens": 2, "num_cached_tokens": 64, **matched}}

    client, server = serve(answer)
    done = client.generate("x", top_logprobs=2, prompt_logprobs=True, timeout_ms=1500)
    sent = server.requests[0].generate
    assert (sent.top_logprobs, sent.timeout_ms) == (2, 1500)
    assert done.top_logprobs == [[(7, -0.5), (9, -1)], [(8, -0.5), (9, -1)]]
    assert done.prompt_top_logprobs == [[(4, -0.25), (5, -4)], [(6, -0.5)]]
    assert (done.num_cached_tokens, done.matched_stop) == (64, stop)
    assert [chunk.top_logprobs for chunk in client.stream("x")] == [
        [], done.top_logprobs[:1], done.top_logprobs[1:]]


def test_what_ends_a_generation_is_sent(serve):
    client, server = serve(three_chunks)
    client.generate("x", stop="\n\n", stop_token_ids=[5, 6], min_tokens=2,
                    include_stop_str_in_output=True, keep_special_tokens=True)
    client.generate("x", stop=["a", b"\xc3\xa4"])
    first, second = (request.generate for request in server.requests)
    assert (list(first.stop), list(first.stop_token_ids)) == ([b"\n\n"], [5, 6])
    assert (first.min_tokens, first.include_stop_str_in_output, first.keep_special_tokens) == (
        2, True, True)
    assert list(second.stop) == [b"a", "\u00e4".encode()]
    with pytest.raises(ValueError, match="stop is 5: ") as refused:
        client.generate("x", stop=5)
    assert refused.value.parameter == "stop"


def test_a_response_format_is_a_message_of_its_own(serve):
    client, server = serve(three_chunks)
    schema = '{"type": "integer"}'
    client.generate("a", response_format={"json_schema": schema})
    client.generate("a", response_format={"json_object": True})
    with pytest.raises(afd.InvalidArgument, match="response_format is .*zebra"):
        client.generate("a", response_format={"zebra": 1})
    one, other = (request.generate.sampling.response_format for request in server.requests)
    assert (one.json_schema, other.json_object) == (schema.encode(), True)


def test_biases_are_messages_of_their_own(serve):
    client, server = serve(three_chunks)
    client.generate("a", logit_bias=[{"token_id": 5, "bias": -100}, {"token_id": 6, "bias": 1}])
    with pytest.raises(afd.InvalidArgument, match="logit_bias is .*zebra"):
        client.generate("a", logit_bias=[{"zebra": 1}])
    sent, = server.requests
    assert [(each.token_id, each.bias) for each in sent.generate.sampling.logit_bias] == [
        (5, -100), (6, 1)]


def test_a_stream_gives_chunks_as_they_come_and_takes_ids(serve):
    client, server = serve(three_chunks)
    assert [chunk.text for chunk in client.stream([3, 4, 5])] == ["ein", "mal", "!"]
    assert list(server.requests[0].generate.token_ids.ids) == [3, 4, 5]
    assert client.generate("again").text == "einmal!"  # The connection is as it was.


def test_a_stream_that_is_closed_is_cancelled_and_the_next_request_is_clean(serve):
    def answer(request):
        kind = request.WhichOneof("body")
        if kind == "generate" and len(server.requests) == 1:
            yield {"accepted": {}}
            yield {"chunk": {"text": "a"}}
        elif kind == "cancel":
            yield {"chunk": {"text": "late"}, "request_id": request.cancel.target}
            yield {"finished": {"reason": 3}, "request_id": request.cancel.target}
            yield {"done": {}}
        else:
            yield from three_chunks(request)
    client, server = serve(answer)
    stream = client.stream("x")
    assert next(stream).text == "a"
    stream.close()
    assert server.requests[1].cancel.target == server.requests[0].request_id
    assert client.generate("y").text == "einmal!"


@pytest.fixture
def interrupt():
    """Raises KeyboardInterrupt in this thread, as Ctrl-C does; called from another one."""
    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_in_the_middle_of_an_answer_leaves_the_connection_in_step(serve, interrupt):
    """Method: half of a chunk is here and read when the signal comes; the rest comes later."""
    def frame_of(request_id):
        data = server.messages["Response"](
            request_id=request_id, chunk={"text": "x" * 1000}).SerializeToString()
        return struct.pack("<I", len(data)) + data

    def answer(request):
        kind = request.WhichOneof("body")
        if kind == "generate" and len(server.requests) == 1:
            yield {"accepted": {}}
            yield frame_of(request.request_id)[:500]
            time.sleep(0.5)
            interrupt()
        elif kind == "cancel":
            yield frame_of(request.cancel.target)[500:]
            yield {"finished": {"reason": 3}, "request_id": request.cancel.target}
            yield {"done": {}}
        else:
            yield from three_chunks(request)
    client, server = serve(answer)
    with pytest.raises(KeyboardInterrupt):
        next(client.stream("x"))
    assert client.generate("y").text == "einmal!"


def test_an_interrupt_is_not_hidden_by_what_the_cancel_finds(serve, interrupt):
    def answer(request):
        if request.WhichOneof("body") == "cancel":
            yield None  # The connection ends.
        yield {"accepted": {}}
        time.sleep(0.5)
        interrupt()
    client, _ = serve(answer)
    with pytest.raises(KeyboardInterrupt):
        next(client.stream("x"))
    with pytest.raises(afd.Unavailable):
        client.generate("y")


def test_a_cancelled_stream_may_end_with_an_error(serve):
    def answer(request):
        if request.WhichOneof("body") == "cancel":
            yield {"error": {"code": 6, "message": "a worker died"},
                   "request_id": request.cancel.target}
            yield {"done": {}}
        elif len(server.requests) == 1:
            yield {"accepted": {}}
            yield {"chunk": {"text": "a"}}
        else:
            yield from three_chunks(request)
    client, server = serve(answer)
    stream = client.stream("x")
    assert next(stream).text == "a"
    stream.close()
    assert client.generate("y").text == "einmal!"


def test_status_is_plain_python(serve):
    client, _ = serve(three_chunks)
    status = client.status()
    assert (status["instance"], status["num_finished"], status["waits"]) == ("default", 2 ** 40, [])
    assert (status["workers"][0]["role"], status["workers"][0]["index"]) == ("ffn", 1)


@pytest.mark.parametrize("code, kind", [(1, afd.InvalidArgument), (4, afd.ResourceExhausted),
                                        (5, afd.FailedPrecondition), (6, afd.Unavailable),
                                        (7, afd.DeadlineExceeded), (11, afd.Error)])
def test_errors_of_the_daemon_have_their_class(serve, code, kind):
    client, _ = serve(lambda request: [{"error": {"code": code, "message": "no: because"}}])
    with pytest.raises(kind, match="no: because"):
        client.generate("x")
    with pytest.raises(kind):  # Still in step.
        client.generate("x")


def test_what_breaks_a_connection_is_said(serve, tmp_path):
    client, _ = serve(lambda request: [{"accepted": {}}, None])
    with pytest.raises(afd.Unavailable, match="closed the connection before all answers came"):
        client.generate("x")
    with pytest.raises(afd.Unavailable, match="no afdd answers at .*nothing.sock: "):
        afd.Client(path=str(tmp_path / "nothing.sock"))


# Goal: an afdd that is busy or hangs is not taken for one that is not there. Method: a queue that
# nobody serves is filled.
def expect_late(path):
    begin = time.monotonic()
    with pytest.raises(afd.DeadlineExceeded, match=f"^cannot reach afdd at {path}: it has not "
                       "accepted the connection in time; afdd hangs or is stopped, see its log$"):
        afd.Client(path=path, timeout=0.3)
    assert time.monotonic() - begin > 0.25


def test_a_queue_that_nobody_serves_has_an_end(tmp_path):
    path, queue = str(tmp_path / "afd.sock"), []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                queue.append(
                    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
                queue[-1].connect(path)
        expect_late(path)
        # A signal meanwhile is no connection,
        before = signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        expect_late(path)
        signal.signal(signal.SIGALRM, before)
        # and the process's own limit is not that of the client.
        socket.setdefaulttimeout(5)
        try:
            expect_late(path)
        finally:
            socket.setdefaulttimeout(None)
    for each in queue:
        each.close()


def test_bytes_that_are_no_frame_are_not_believed(serve):
    client, _ = serve(lambda request: [b"HTTP/1.1 400 Bad Request"])
    with pytest.raises(afd.Unavailable, match="a message of 1347703880 bytes was announced"):
        client.generate("x")


def test_silence_has_an_end(serve):
    client, _ = serve(lambda request: [], timeout=0.2)
    with pytest.raises(afd.DeadlineExceeded, match="afdd gave no answer within 0.2 s"):
        client.status()
    with pytest.raises(afd.DeadlineExceeded, match="the upgrade has not ended after 0.2 s; it goes "):
        client.upgrade()


# Goal: the timeout is that of the whole generation, cancels it, and costs nothing but it. Method: a
# chunk each 20 ms; the cancelled generation's end comes before the next answer.
def test_a_generation_that_takes_too_long_is_cancelled(serve):
    is_cancelled = threading.Event()

    def answer(request):
        kind = request.WhichOneof("body")
        if kind == "generate" and len(server.requests) == 1:
            yield {"accepted": {}}
            for _ in range(25):
                time.sleep(0.02)
                yield {"chunk": {"text": "a", "num_tokens": 1}}
        elif kind == "cancel":
            is_cancelled.set()
            yield {"finished": {"reason": 3, "num_output_tokens": 25},
                   "request_id": request.cancel.target}
            yield {"done": {}}
        else:
            yield from three_chunks(request)
    client, server = serve(answer, timeout=0.3)
    with pytest.raises(afd.DeadlineExceeded,
                       match=r"the generation had not ended after 0.3 s \(\d+ tokens came\) and was "):
        client.generate("x")
    assert is_cancelled.wait(60)
    client.timeout = 60
    assert client.generate("y").text == "einmal!"


# Goal: what another request would take from under an open stream is not lost silently.
@pytest.mark.parametrize("ask", [
    lambda client: client.status(), lambda client: client.generate("y"),
    lambda client: next(client.stream("y")), lambda client: client.upgrade()])
def test_an_open_stream_is_the_only_request(serve, ask):
    client, server = serve(three_chunks)
    texts = []
    for chunk in client.stream("x"):
        texts.append(chunk.text)
        with pytest.raises(afd.FailedPrecondition, match="a stream of this client is open"):
            ask(client)
    assert texts == ["ein", "mal", "!"]
    assert len(server.requests) == 1
    assert client.generate("y").text == "einmal!"


# Goal: the same of a change, whose last answer was lost and waited for until the timeout.
def test_a_change_is_the_only_request_while_it_runs(serve):
    client, server = serve(lambda request: [{"progress": {"text": "loading"}}, {"upgraded": {}}]
                           if request.WhichOneof("body") == "upgrade" else three_chunks(request))
    lines = []

    def on_progress(text):
        lines.append(text)
        with pytest.raises(afd.FailedPrecondition, match="a resize or upgrade of this client runs"):
            client.status()
    client.upgrade(on_progress=on_progress)
    assert lines == ["loading"]
    assert len(server.requests) == 1
    assert client.status()["instance"] == "default"


@pytest.mark.parametrize("answers, text", [
    ([{"accepted": {"num_received_tokens": 1}}, {"chunk": {"num_tokens": 2}},
      {"finished": {"num_output_tokens": 2}}], "chunks with 3 tokens, but finished after 2"),
    ([{"finished": {}}], "finished before accepted"),
    ([{"accepted": {}}, {"accepted": {}}], "accepted again")])
def test_answers_that_do_not_fit_together_are_no_result(serve, answers, text):
    client, server = serve(lambda request: answers if len(server.requests) == 1
                           else three_chunks(request))
    with pytest.raises(afd.Error, match=f"afdd's answers do not fit together: {text}"):
        client.generate("x")
    assert client.generate("y").text == "einmal!"


def test_settings_are_judged_before_they_are_sent(serve):
    client, server = serve(three_chunks)
    with pytest.raises(ValueError, match="there is no setting temprature; there are ") as refused:
        client.generate("x", temprature=1.0)
    assert refused.value.parameter == "temprature"
    with pytest.raises(ValueError, match="temperature is 'hot': "):
        client.generate("x", temperature="hot")
    assert not server.requests


@pytest.mark.parametrize("call, parameter", [
    (lambda client: client.stream("x", max_tokens=-1), "max_tokens"),
    (lambda client: client.stream("x", max_tokens=2 ** 32), "max_tokens"),
    (lambda client: client.stream("x", ignore_eos="yes"), "ignore_eos"),
    (lambda client: client.stream("x", top_logprobs=-1), "top_logprobs"),
    (lambda client: client.stream("x", timeout_ms=0.5), "timeout_ms"),
    (lambda client: client.stream("x", resumable=float("inf")), "resumable"),
    (lambda client: client.stream("x", resumable=-1.0), "resumable"),
    (lambda client: client.stream("a lone \udcff"), "prompt"),
    (lambda client: client.stream([1, -1]), "prompt"),
    (lambda client: client.stream(["one"] * 1000), "prompt"),
    (lambda client: client.stream([1, 1.7]), "prompt"),
    (lambda client: client.stream([1, "5"]), "prompt"),
    (lambda client: client.stream([1, True]), "prompt"),
    (lambda client: client.stream("x", stop_token_ids=[True]), "stop_token_ids"),
    (lambda client: client.stream("x", stop_token_ids=[1.7]), "stop_token_ids"),
    (lambda client: client.stream(7), "prompt"),
    (lambda client: client.resume_stream("abcd", received=-1), "received"),
    (lambda client: client.resume_stream(7), "resume_id")])
def test_arguments_that_no_request_holds_are_named(serve, call, parameter):
    client, server = serve(three_chunks)
    with pytest.raises(afd.InvalidArgument, match=f"^{parameter} is ") as refused:
        call(client)
    assert refused.value.parameter == parameter
    assert len(str(refused.value)) < 300
    assert client.generate("y").text == "einmal!"
    assert len(server.requests) == 1


def test_token_ids_may_be_those_of_an_array(serve):
    client, server = serve(three_chunks)
    client.generate(np.array([3, 4], np.uint16), stop_token_ids=np.array([5]))
    sent = server.requests[0].generate
    assert (list(sent.token_ids.ids), list(sent.stop_token_ids)) == ([3, 4], [5])


@pytest.mark.parametrize("timeout", [0, -1, 1e10, float("inf"), float("nan"), None, "5"])
def test_a_timeout_is_seconds_that_a_socket_can_wait(serve, tmp_path, timeout):
    client, _ = serve(three_chunks)
    with pytest.raises(afd.InvalidArgument, match="^timeout is .*; it must be a number of seconds "
                                                  "above 0 and at most 1000000000$") as refused:
        client.timeout = timeout
    assert refused.value.parameter == "timeout"
    assert client.generate("y").text == "einmal!"
    with pytest.raises(afd.InvalidArgument, match="^timeout is "):
        afd.Client(path=str(tmp_path / "nothing.sock"), timeout=timeout)


def test_the_longest_timeout_is_one(serve):
    client, _ = serve(three_chunks, timeout=10 ** 9)
    assert client.generate("y").text == "einmal!"


# Goal: the client reads messages with protobuf from 3 to 7. Method: descriptors as older and newer
# ones have them: the newer ones have no label.
def test_a_field_is_repeated_in_the_words_of_any_protobuf():
    for repeated in (True, False):
        assert _is_repeated(SimpleNamespace(label=3 if repeated else 1)) is repeated
        assert _is_repeated(SimpleNamespace(is_repeated=repeated)) is repeated


def test_where_an_instance_listens(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(afd.NotFound, match="there is no folder .*/afd; start afdd"):
        afd.socket_path()
    (tmp_path / "afd").mkdir(mode=0o755)
    (tmp_path / "afd").chmod(0o755)
    with pytest.raises(ValueError, match="must be a folder of this user with mode 0700"):
        afd.socket_path()
    (tmp_path / "afd").chmod(0o700)
    assert afd.socket_path("two") == f"{tmp_path}/afd/two.sock"
    with pytest.raises(ValueError, match="instance is 'Two'; allowed are 1 to 32 of a-z"):
        afd.socket_path("Two")


def test_a_resumable_generation_has_its_id_before_its_first_chunk(serve):
    def answer(_request):
        yield {"accepted": {"seed": 7, "resume_id": "abcd"}}
        yield {"chunk": {"text": "ein", "num_tokens": 1}}
        yield None

    client, server = serve(answer)
    stream = client.stream("Es war", resumable=1.5)
    assert next(stream).text == "ein"
    assert client.resume_id == "abcd"
    assert server.requests[0].generate.resumable_ms == 1500
    with pytest.raises(afd.Unavailable):
        next(stream)


def test_resume_asks_for_what_is_missing(serve):
    def answer(request):
        yield {"accepted": {"seed": 7, "resume_id": "abcd", "num_received_tokens": 1}}
        yield {"chunk": {"text": "mal", "num_tokens": 1}}
        yield {"finished": {"reason": 1, "num_output_tokens": 2}}

    client, server = serve(answer)
    with client:
        done = client.resume("abcd", received=1)
    assert (done.text, done.finish_reason, done.num_output_tokens) == ("mal", "stop", 2)
    assert (server.requests[0].resume.id, server.requests[0].resume.received_chunks) == ("abcd", 1)


def test_a_change_tells_its_steps_and_then_what_came_of_it(serve):
    def answer(request):
        yield {"progress": {"text": "starting"}}
        if request.WhichOneof("body") == "resize":
            yield {"progress": {"text": "moving"}}
            yield {"resized": {"attention_workers": 3, "ffn_workers": 1, "num_replays": 4}}
        elif len(server.requests) == 2:
            yield {"upgraded": {"pid": 12, "old_pid": 11, "version": "0.2"}}
        else:
            yield {"error": {"code": 5, "message": "a resize is under way"}}

    client, server = serve(answer)
    said = []
    resized = client.resize(attention_workers=3, stop_first=True, on_progress=said.append)
    assert (resized["attention_workers"], resized["ffn_workers"], resized["num_replays"]) == (3, 1, 4)
    assert said == ["starting", "moving"]
    asked = server.requests[0].resize
    assert (asked.attention_workers, asked.ffn_workers, asked.stop_first) == (3, 0, True)
    upgraded = client.upgrade()
    assert (upgraded["pid"], upgraded["old_pid"], upgraded["version"]) == (12, 11, "0.2")
    with pytest.raises(afd.FailedPrecondition, match="a resize is under way"):
        client.upgrade(on_progress=said.append)
    with pytest.raises(ValueError, match="ffn_workers is -1: ") as refused:
        client.resize(ffn_workers=-1)
    assert refused.value.parameter == "ffn_workers"
