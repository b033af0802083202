# SPDX-License-Identifier: Apache-2.0
"""The operators of afd from Python, a client of its daemon, and workers for it.

    import afd
    result = afd.moe_init_routing_v3(x, expert_idx, expert_num=64, quant_mode=1)
    result.expanded_x, result.expanded_row_idx

Arrays come from NumPy or from anything with __dlpack__ or __array_interface__ and are not copied;
bf16 is what DLPack calls so, or afd.bf16(array). Results are NumPy arrays (afd.BFloat16 for bf16) in
a named tuple; what is switched off is None. print(afd.describe(name)) says what an operator takes
and gives; the options of every call are in README.md.
"""
try:
    from afd import _native
except ImportError as _error:
    raise ImportError(f"afd: {_error}; its compiled part is in the folder that afd is imported from "
                      "where it has been installed (pip install, cmake --install), and in "
                      "build/PRESET/python of a build, for the version of Python that it was made "
                      "with") from _error
from afd._client import Chunk, Client, Generation, socket_path
from afd._context import MASKED_ID, ScheduleContext, segment, unlink_segment
from afd._errors import (DeadlineExceeded, Error, FailedPrecondition, InvalidArgument, NotFound,
                         ResourceExhausted, Unavailable)
from afd._errors import suggestion as _suggestion
from afd._operators import describe, make_operators, numeric_classes, operators, record
from afd._tensors import BFloat16, bf16
from afd._time import Timing, machine_limits, timeit
from afd._weights import read_tensors
from afd._worker import Batch, FfnWorker

__version__ = _native.version()

globals().update(make_operators())


def __getattr__(name: str):
    known = [each for each in globals() if not each.startswith("_")]
    raise AttributeError(f"module 'afd' has no attribute '{name}'" + _suggestion(name, known))
