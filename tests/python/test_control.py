# SPDX-License-Identifier: Apache-2.0
"""A worker's end of the control socket, against a socket that is not served.

What a real afdd answers is the business of test_live_worker.py.
"""
import os
import resource
import socket
import threading

import pytest

import afd
from afd._control import ControlChannel, readable_of
from afd._messages import Frames, messages, pack

TIMEOUT, PATIENCE = 0.3, 30.0


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.bind(str(tmp_path / "afd.sock"))
        made.listen(0)
        yield made


def failure_of_connecting(path, timeout=TIMEOUT):
    """What ControlChannel raises; a thread, so that one that waits for ever fails the test."""
    raised = []

    def connect():
        try:
            ControlChannel(path, 1, 0, timeout).close()
        except afd.Error as error:
            raised.append(error)
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it waits on"
    return raised[0]


def test_a_queue_that_nobody_serves_has_an_end(listener):
    path, queue = listener.getsockname(), []
    with pytest.raises(BlockingIOError):
        while True:
            queue.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            queue[-1].connect(path)
    error = failure_of_connecting(path)
    assert isinstance(error, afd.DeadlineExceeded)
    assert "took no connection in time" in str(error)
    for each in queue:
        each.close()


# Goal: a worker hears what is voided, whatever else afdd says before the answer, and does not wait
# for ever for an afdd that says nothing more. Method: an afdd that is this test.
def test_what_is_voided_is_asked_once_the_weights_are_there(listener):
    types = messages("control", "WorkerMessage", "SupervisorMessage")

    def answer(**body):
        served.sendall(pack(types["SupervisorMessage"](**body).SerializeToString()))

    made = []
    connecting = threading.Thread(
        target=lambda: made.append(ControlChannel(listener.getsockname(), 2, 0, PATIENCE)))
    connecting.start()
    served = listener.accept()[0]
    with served:
        answer(welcome={"instance": "test"})
        connecting.join(PATIENCE)
        channel, = made
        answer(shutdown={})
        answer(voided={"rounds": [{"session": 1, "micro_batch": 2, "round": 3}]})
        assert [(each.session, each.micro_batch, each.round) for each in channel.ask_voided()] == [
            (1, 2, 3)]
        assert channel.is_shut_down
        frames, asked = Frames(), []
        while len(asked) < 2:
            frames.feed(served.recv(1 << 16))
            while (frame := frames.next()) is not None:
                asked.append(types["WorkerMessage"].FromString(frame).WhichOneof("body"))
        assert asked == ["hello", "loaded"]
        channel._timeout = TIMEOUT
        with pytest.raises(afd.DeadlineExceeded, match="did not answer the Loaded of this worker"):
            channel.ask_voided()
        channel.close()


def test_a_hello_that_nobody_answers_has_an_end(listener):
    error = failure_of_connecting(listener.getsockname())
    assert isinstance(error, afd.DeadlineExceeded)
    assert "did not answer the Hello" in str(error)


def test_bytes_that_are_no_frame_are_not_believed(listener):
    def answer():
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request")
            peer.settimeout(PATIENCE)
            while peer.recv(1 << 16):  # Its Hello, and then its end.
                pass
            is_closed.set()
    is_closed = threading.Event()
    threading.Thread(target=answer, daemon=True).start()
    error = failure_of_connecting(listener.getsockname(), PATIENCE / 2)
    assert isinstance(error, afd.Unavailable)
    assert "a message of 1347703880 bytes was announced" in str(error)
    assert is_closed.wait(PATIENCE)


@pytest.fixture
def crowd():
    """A process with so many files open that the next descriptors are larger than select() takes."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 2048:
        pytest.skip("2048 files may not be open here (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, before[1]))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < 1100:
        taken.append(os.dup(taken[0]))
    yield
    for each in taken:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_worker_may_have_many_files_open(listener, crowd):
    assert "did not answer the Hello" in str(failure_of_connecting(listener.getsockname()))
    reader, writer = os.pipe()
    assert reader > 1024
    assert readable_of([reader], 0) == []
    os.write(writer, b"x")
    assert readable_of([reader], PATIENCE) == [reader]
    os.read(reader, 1)
    os.close(writer)
    assert readable_of([reader], PATIENCE) == [reader]
    os.close(reader)


def test_a_socket_that_is_not_there_is_not_found(tmp_path):
    error = failure_of_connecting(str(tmp_path / "nothing.sock"))
    assert isinstance(error, afd.NotFound)
