# SPDX-License-Identifier: Apache-2.0
"""The classes of proto/*.proto, from their description beside this file, and their frames."""
import errno
import pathlib
import socket
import struct
import time
from typing import Any

from afd._errors import Unavailable

FRAME_BYTES_MAX = 16 << 20  # proto/frame.h


def messages(package: str, *names: str) -> dict[str, Any]:
    """The classes of those names of afd.PACKAGE. Errors: ImportError without Python's protobuf."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise ImportError("who talks to afdd needs Python's protobuf: install python3-protobuf, or "
                          "pip's protobuf") from error
    path = pathlib.Path(__file__).parent / "messages.desc"
    files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    made = {}
    for name in names:
        found = pool.FindMessageTypeByName(f"afd.{package}.{name}")
        if hasattr(message_factory, "GetMessageClass"):
            made[name] = message_factory.GetMessageClass(found)
        else:
            made[name] = message_factory.MessageFactory(pool).GetPrototype(found)
    return made


def pack(message: bytes) -> bytes:
    """A serialised message as the frame that is sent."""
    return struct.pack("<I", len(message)) + message


def connect_within(connection: socket.socket, path: str, seconds: float) -> None:
    """Connects, and leaves the rest of the time as the limit of sends. Errors: BlockingIOError, if
    nobody takes it in time. The limit is the kernel's, as Python's would find a socket whose queue
    is full refused at once."""
    deadline = time.monotonic() + seconds
    connection.settimeout(None)  # Or that of socket.setdefaulttimeout() counts.
    while True:
        limit_sends(connection, max(deadline - time.monotonic(), 1e-6))
        connection.connect(path)
        try:
            connection.getpeername()
            return
        except OSError as error:
            # A signal has ended the wait, which Python takes for a connection.
            if error.errno != errno.ENOTCONN:
                raise


def limit_sends(connection: socket.socket, seconds: float) -> None:
    """0: no limit."""
    micros = max(round(seconds * 1e6), 1) if seconds else 0
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO,
                          struct.pack("@ll", *divmod(micros, 1_000_000)))


class Frames:
    """The messages in bytes that come over a socket. An interrupted reader has lost none."""

    def __init__(self) -> None:
        self._bytes = bytearray()  # From the start of a frame on.

    def feed(self, received: bytes) -> None:
        self._bytes += received

    def next(self) -> bytes | None:
        """The next message, if all of it is here. Errors: Unavailable, if these are no frames; the
        connection cannot be followed any further."""
        if len(self._bytes) < 4:
            return None
        size, = struct.unpack_from("<I", self._bytes)
        if size > FRAME_BYTES_MAX:
            raise Unavailable(f"a message of {size} bytes was announced; is this the socket of an "
                              "afdd?")
        if len(self._bytes) < 4 + size:
            return None
        message = bytes(self._bytes[4:4 + size])
        del self._bytes[:4 + size]
        return message
