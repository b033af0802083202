# SPDX-License-Identifier: Apache-2.0
"""A worker's end of the control socket of afdd (proto/control.proto): messages and descriptors."""
import array
import os
import select
import socket
import time

from afd._errors import (DeadlineExceeded, Error, FailedPrecondition, NotFound, Unavailable,
                         error_of)
from afd._messages import Frames, connect_within, limit_sends, messages, pack

VERSION = 8  # kControlVersion of daemon/control/control_channel.h
_FDS_MAX = 253  # Of one message; the kernel's limit.


def readable_of(fds: list[int], timeout: float) -> list[int]:
    """Those that can be read, or have ended, once there is one; none after `timeout` seconds.

    select() knows no descriptor beyond 1023.
    """
    poll = select.poll()
    for each in fds:
        poll.register(each, select.POLLIN)
    return [fd for fd, _ in poll.poll(timeout * 1000)]


class ControlChannel:
    """Connected and welcomed: `welcome`, and `fds` in the order that the Welcome says."""

    def __init__(self, path: str, role: int, index: int, timeout: float):
        self._types = messages("control", "WorkerMessage", "SupervisorMessage")
        self._frames = Frames()
        self.fds: list[int] = []
        self.is_shut_down = False
        self._timeout = timeout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        deadline = time.monotonic() + timeout
        try:
            self._connect(path, timeout)
            self.send(hello={"role": role, "index": index, "pid": os.getpid(), "version": VERSION})
            limit_sends(self._socket, 0)
            self.welcome = self._await_welcome(deadline)
        except BaseException:
            self.close()
            raise

    def _connect(self, path: str, timeout: float) -> None:
        try:
            connect_within(self._socket, path, timeout)
        except BlockingIOError:
            raise DeadlineExceeded(f"afdd at {path} took no connection in time: others wait before "
                                   "this one; is it stopped?") from None
        except OSError as error:
            kind = NotFound if isinstance(error, FileNotFoundError) else Unavailable
            raise kind(f"cannot connect to afdd at {path}: {error.strerror or error}; is the "
                       "instance running?", "instance") from error

    def _await(self, what: str, deadline: float):
        """The next message, which may answer that of this worker."""
        while (message := self._next()) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not readable_of([self.fileno()], left):
                raise DeadlineExceeded(f"afdd did not answer the {what} of this worker in time")
            self._receive()
        return message

    def _await_welcome(self, deadline: float):
        message = self._await("Hello", deadline)
        kind = message.WhichOneof("body")
        if kind == "refused":
            raise error_of(message.refused.code,
                           f"afdd refuses this worker: {message.refused.message}")
        if kind != "welcome" or message.welcome.num_fds != len(self.fds):
            raise Error("afdd answered the Hello with something else")
        return message.welcome

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, **body) -> None:
        """One message: its field of WorkerMessage and that one's fields."""
        data = self._types["WorkerMessage"](**body).SerializeToString()
        try:
            self._socket.sendall(pack(data))
        except OSError as error:
            raise Unavailable(f"afdd is gone: {error}") from error

    def ask_voided(self) -> list:
        """Once the weights are there: the rounds that this worker is not to execute (R12), all of
        them."""
        deadline = time.monotonic() + self._timeout
        self.send(loaded={})
        while (message := self._await("Loaded", deadline)).WhichOneof("body") != "voided":
            self.is_shut_down |= message.WhichOneof("body") == "shutdown"
        return list(message.voided.rounds)

    def take(self) -> None:
        """Reads what came; call when readable. is_shut_down: afdd wants this worker to end."""
        self._receive()
        while (message := self._next()) is not None:
            self.is_shut_down |= message.WhichOneof("body") == "shutdown"

    def abandon(self) -> None:
        """Leaves the socket open until this process ends: afdd kills a worker that lives on without
        it, which then could not say why it ends nor choose its exit status."""
        self._socket.detach()

    def close(self) -> None:
        self._socket.close()
        for each in self.fds:
            os.close(each)
        self.fds = []

    def _receive(self) -> None:
        room = _FDS_MAX * array.array("i").itemsize
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(
                1 << 16, socket.CMSG_SPACE(room), socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"afdd is gone: {error}") from error
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(content[:len(content) // fds.itemsize * fds.itemsize])
                self.fds += fds
        if flags & socket.MSG_CTRUNC:
            raise FailedPrecondition("descriptors of afdd were lost: this process may open too few "
                                     "files (ulimit -n)")
        if not data:
            raise Unavailable("afdd closed the connection; see its log")
        self._frames.feed(data)

    def _next(self):
        try:
            message = self._frames.next()
        except Unavailable:
            self.close()
            raise
        return None if message is None else self._types["SupervisorMessage"].FromString(message)
