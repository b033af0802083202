# SPDX-License-Identifier: Apache-2.0
"""What calls raise: one class for each of the library's codes."""
import difflib
from typing import Iterable


class Error(Exception):
    """`parameter`: the attribute, tensor or field that is wrong, or an empty string."""

    def __init__(self, message: str, parameter: str = ""):
        super().__init__(message)
        self.parameter = parameter


class InvalidArgument(Error, ValueError):
    """The call is wrong; the message says what is allowed."""


class NotFound(Error, LookupError):
    """There is nothing of this name."""


class ResourceExhausted(Error, MemoryError):
    """More memory than memory_max, or than there is."""


class FailedPrecondition(Error, RuntimeError):
    """A right call in a wrong state."""


class Unavailable(Error, ConnectionError):
    """The daemon is not there, or gone."""


class DeadlineExceeded(Error, TimeoutError):
    """A wait came to its end."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the nearest that is, if one is near."""
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


_BY_CODE = {1: InvalidArgument, 2: NotFound, 4: ResourceExhausted, 5: FailedPrecondition,
            6: Unavailable, 7: DeadlineExceeded}


def error_of(code: int, message: str, parameter: str = "") -> Error:
    return _BY_CODE.get(code, Error)(message, parameter)
