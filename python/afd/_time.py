# SPDX-License-Identifier: Apache-2.0
"""afd.timeit: how long a call takes, beside what the machine can do."""
import functools
import statistics
import time
from typing import NamedTuple

import numpy as np

from afd import _native
from afd._errors import InvalidArgument
from afd._operators import Call, Operator
from afd._tensors import bytes_of


class Timing(NamedTuple):
    """Of one call: its median, what it moves and computes, and both against the machine's limits."""
    median_s: float
    repeats: int
    num_bytes: int        # Of all tensors, in and out, each once.
    operations: float     # Multiplications and additions of its matrices; 0: it moves data only.
    bytes_ratio: float    # Bytes a second, of what copying memory reaches here.
    operations_ratio: float  # Operations a second, of what matrices in the cache reach here.

    def __str__(self) -> str:
        text = (f"median {self.median_s * 1e6:.1f} us of {self.repeats}; {self.num_bytes} bytes, "
                f"{self.num_bytes / self.median_s / 1e9:.2f} GB/s, {self.bytes_ratio:.0%} of "
                "copying memory")
        if self.operations:
            text += (f"; {self.operations:.3g} operations, "
                     f"{self.operations / self.median_s / 1e9:.1f} G/s, "
                     f"{self.operations_ratio:.0%} of matrices in the cache")
        return text


@functools.lru_cache
def machine_limits(num_threads: int = 1) -> tuple[float, float]:
    """Bytes and operations a second, measured here once, in about a fifth of a second."""
    return _native.machine_limits(num_threads)


class _Changes:
    """What a run changes in place, to be undone before the next one."""

    _PIECE = 1 << 16  # Bytes. Of a cache that hardly changes hardly anything is written back.

    def __init__(self, views):
        self._memory = [bytes_of(view) for view in views]
        self._before = [memory.copy() for memory in self._memory]
        self._changed: list[tuple[np.ndarray, np.ndarray]] = []

    def note(self) -> None:
        """After the first run: only what it changed is kept."""
        for memory, before in zip(self._memory, self._before):
            for begin in range(0, memory.size, self._PIECE):
                piece = slice(begin, begin + self._PIECE)
                if not np.array_equal(memory[piece], before[piece]):
                    self._changed.append((memory[piece], before[piece].copy()))
        self._before = []

    def undo(self) -> None:
        for memory, before in self._changed:
            memory[:] = before


def timeit(operator: Operator, *args, repeat: int = 100, **kwargs) -> Timing:
    """The time of `operator(*args, **kwargs)`, without judging the request.

    Nothing is allocated in that time, except a workspace of more than 256 MiB, which every call
    gets anew. Every repetition begins with what the first one found: what a run changes in place is
    put back before the next, outside of the time that is taken. In the end it is as after one call.
    Until the first run is over, this takes as much memory again as is written in place.
    """
    if repeat < 1:
        raise InvalidArgument(f"repeat is {repeat}; it must be at least 1", "repeat")
    call = Call(operator, args, kwargs)
    changes = _Changes(call.in_place)
    call.run()  # Pages and caches.
    changes.note()
    times = []
    for _ in range(repeat):
        changes.undo()
        start = time.perf_counter()
        call.run()
        times.append(time.perf_counter() - start)
    median = statistics.median(times)
    bytes_rate, operation_rate = machine_limits(max(1, kwargs.get("num_threads", 1)))
    return Timing(median, repeat, call.num_bytes, call.operations,
                  call.num_bytes / median / bytes_rate, call.operations / median / operation_rate)
