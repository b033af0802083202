# SPDX-License-Identifier: Apache-2.0
"""A worker's end of the control socket, against a socket that is not served.

What a real afdd answers is the business of test_live_worker.py.
"""
import socket
import threading

import pytest

import afd
from afd._control import ControlChannel

TIMEOUT, PATIENCE = 0.3, 30.0


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.bind(str(tmp_path / "afd.sock"))
        made.listen(0)
        yield made


def failure_of_connecting(path):
    """What ControlChannel raises; a thread, so that one that waits for ever fails the test."""
    raised = []

    def connect():
        try:
            ControlChannel(path, 1, 0, TIMEOUT).close()
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


def test_a_hello_that_nobody_answers_has_an_end(listener):
    error = failure_of_connecting(listener.getsockname())
    assert isinstance(error, afd.DeadlineExceeded)
    assert "did not answer the Hello" in str(error)


def test_a_socket_that_is_not_there_is_not_found(tmp_path):
    error = failure_of_connecting(str(tmp_path / "nothing.sock"))
    assert isinstance(error, afd.NotFound)
