# SPDX-License-Identifier: Apache-2.0
"""bf16 for NumPy, and the arrays of results."""
import ctypes

import numpy as np

from afd import _native

DTYPES = ("bf16", "fp16", "fp32", "int8", "int32", "int64", "uint8", "bool")
_NUMPY = (np.uint16, np.float16, np.float32, np.int8, np.int32, np.int64, np.uint8, np.bool_)
_CPU = 1  # Of DLPack's devices.


class BFloat16(np.ndarray):
    """An array of bf16 numbers, for NumPy their 16 bits; arithmetic needs float32().

    Its __dlpack__ says bf16, so `torch.from_dlpack(array)` is a bfloat16 tensor on the same memory.
    """

    def float32(self) -> np.ndarray:
        """The numbers, each exactly."""
        bits = np.asarray(self).astype(np.uint32)
        bits <<= np.uint32(16)  # In place: else an array without axes becomes a number.
        return bits.view(np.float32)

    def __dlpack__(self, **kwargs):
        # What became of it by astype() is an array of this class too.
        is_bf16 = self.dtype == np.uint16
        return _native.bf16_capsule(self) if is_bf16 else super().__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return (_CPU, 0)


def bf16(values) -> BFloat16:
    """Bits (an array of uint16, not copied) or numbers (rounded half to even) as bf16.

    Bits in the other byte order are copied. Numbers of any type are rounded once.
    """
    array = np.asarray(values)
    if array.dtype.kind == "u" and array.dtype.itemsize == 2:
        return np.asarray(array, np.uint16).view(BFloat16)
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16).view(BFloat16)
    bits = np.ascontiguousarray(_to_float32(array)).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    # The sum above would make an infinity or a zero of some NaN.
    quiet = ((bits >> 16) | 0x40).astype(np.uint16)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, quiet, rounded).reshape(array.shape).view(BFloat16)


def bytes_of(view: _native.TensorView) -> np.ndarray:
    """The memory of a view from its first element to its last, gaps included; not a copy."""
    if 0 in view.shape:
        return np.empty(0, np.uint8)
    last = sum((extent - 1) * stride for extent, stride in zip(view.shape, view.strides))
    size = (last + 1) * np.dtype(_NUMPY[view.dtype]).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(view.data), np.uint8)


def _to_float32(array: np.ndarray) -> np.ndarray:
    """fp32 numbers that have the array's own neighbours in bf16.

    What fp32 does not hold is rounded to odd there: to the nearer to zero of its two neighbours, with
    the last bit set. So it stays on its side of every number that is half way between two of bf16.
    """
    with np.errstate(over="ignore", under="ignore"):
        near = np.asarray(array, np.float32)
    if array.dtype.kind not in "fiu" or np.can_cast(array.dtype, np.float32):
        return near
    # A long double has the 64 bits of every integer.
    exact = array if array.dtype.kind == "f" else array.astype(np.longdouble)
    back = near.astype(exact.dtype)
    bits = np.ascontiguousarray(near).view(np.uint32)
    bits = bits - (abs(back) > abs(exact)).reshape(bits.shape)
    return (bits | (back != exact).reshape(bits.shape)).astype(np.uint32).view(np.float32)


def make_array(dtype: int, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros, aligned for any kernel."""
    array = np.zeros(shape, _NUMPY[dtype])
    return array.view(BFloat16) if dtype == 0 else array
