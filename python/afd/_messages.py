# SPDX-License-Identifier: Apache-2.0
"""The classes of proto/*.proto, from their description beside this file."""
import pathlib
from typing import Any

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
