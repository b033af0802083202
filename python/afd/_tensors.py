# SPDX-License-Identifier: Apache-2.0
"""Arrays as the library sees them, without a copy: NumPy, __dlpack__, __array_interface__."""
import ctypes
from typing import Any, NamedTuple

import numpy as np

from afd._errors import InvalidArgument
from afd._library import RANK_MAX

DTYPES = ("bf16", "fp16", "fp32", "int8", "int32", "int64", "uint8", "bool")
_NUMPY = (np.uint16, np.float16, np.float32, np.int8, np.int32, np.int64, np.uint8, np.bool_)
_CODES = {np.dtype(numpy): code for code, numpy in enumerate(_NUMPY) if code != 0}


class BFloat16(np.ndarray):
    """An array of bf16 numbers, for NumPy their 16 bits; arithmetic needs float32().

    Its __dlpack__ says bf16, so `torch.from_dlpack(array)` is a bfloat16 tensor on the same memory.
    """

    def float32(self) -> np.ndarray:
        """The numbers, each exactly."""
        return (np.asarray(self).astype(np.uint32) << 16).view(np.float32)

    def __dlpack__(self, **_kwargs):
        return _capsule_of(self)

    def __dlpack_device__(self):
        return (_CPU, 0)


def bf16(values) -> BFloat16:
    """Bits (an array of uint16, not copied) or numbers (rounded half to even) as bf16."""
    array = np.asarray(values)
    if array.dtype == np.uint16 or array.dtype.name == "bfloat16":
        return array.view(np.uint16).view(BFloat16)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    # The sum above would make an infinity or a zero of some NaN.
    quiet = ((bits >> 16) | 0x40).astype(np.uint16)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, quiet, rounded).reshape(array.shape).view(BFloat16)


# dlpack.h, version 0: what every producer gives that is not asked for another.
_CPU, _PINNED = 1, 3


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _DLManagedTensor(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = [("dl_tensor", _DLTensor), ("manager", ctypes.c_void_p),
                             ("deleter", _Deleter)]
_DL_TYPES = {(4, 16): 0, (2, 16): 1, (2, 32): 2, (0, 8): 3, (0, 32): 4, (0, 64): 5, (1, 8): 6,
             (6, 8): 7}

_python = ctypes.pythonapi
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python))
_get_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python))
_CapsuleDestructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p,
                                 _CapsuleDestructor)(("PyCapsule_New", _python))
_exported: dict[int, tuple] = {}  # What consumers hold, by the address of its structure.


@_Deleter
def _delete(managed):
    _exported.pop(ctypes.addressof(managed.contents), None)


@_CapsuleDestructor
def _destroy(capsule):
    if _is_valid(capsule, b"dltensor"):  # Nobody took it.
        _exported.pop(_get_pointer_of(capsule, b"dltensor"), None)


def _capsule_of(array: BFloat16):
    managed = _DLManagedTensor()
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(step // 2 for step in array.strides))
    managed.dl_tensor = _DLTensor(array.ctypes.data, _CPU, 0, array.ndim, 4, 16, 1, shape, strides,
                                  0)
    managed.deleter = _delete
    _exported[ctypes.addressof(managed)] = (managed, shape, strides, array)
    return _new_capsule(ctypes.addressof(managed), b"dltensor", _destroy)


class View(NamedTuple):
    """Memory of a tensor; `owner` keeps it."""
    data: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_writable: bool
    owner: Any


def _refuse(name: str, text: str) -> InvalidArgument:
    return InvalidArgument(f"{name} {text}", name)


def _dtype_of(name: str, array: np.ndarray) -> int:
    if isinstance(array, BFloat16) or array.dtype.name == "bfloat16":
        return 0
    code = _CODES.get(array.dtype)
    if code is None:
        hint = "; bits of bf16 are afd.bf16(array)" if array.dtype == np.uint16 else ""
        raise _refuse(name, f"has dtype {array.dtype}; operators take {', '.join(DTYPES)}{hint}")
    return code


def _check(name: str, view: View) -> View:
    if len(view.shape) > RANK_MAX:
        raise _refuse(name, f"has {len(view.shape)} dimensions; operators take at most {RANK_MAX}")
    if 0 in view.shape:  # Whose strides say nothing.
        return view._replace(strides=(0,) * len(view.shape))
    # The library takes strides of 0 for "contiguous", and none below.
    if any(step < 1 and extent > 1 for step, extent in zip(view.strides, view.shape)):
        raise _refuse(name, "is not contiguous; copy it first")
    return view


def _view_of_array(name: str, array: np.ndarray) -> View:
    code = _dtype_of(name, array)
    if any(step % array.itemsize for step in array.strides):
        raise _refuse(name, "is not contiguous; copy it first")
    strides = tuple(step // array.itemsize for step in array.strides)
    return View(array.ctypes.data, code, array.shape, strides, array.flags.writeable, array)


def _view_of_dlpack(name: str, value: Any) -> View:
    device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else _CPU
    if int(device) not in (_CPU, _PINNED):
        raise _refuse(name, f"is on device {device} of DLPack; operators read memory of the CPU")
    try:
        capsule = value.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # Each library its own.
        raise _refuse(name, f"cannot be exported: {error}") from error
    # The capsule is kept and not consumed: its memory lives as long as it does.
    tensor = _DLManagedTensor.from_address(_get_pointer(capsule, b"dltensor")).dl_tensor
    code = _DL_TYPES.get((tensor.code, tensor.bits))
    if code is None or tensor.lanes != 1:
        raise _refuse(name, f"has the DLPack type ({tensor.code}, {tensor.bits}, {tensor.lanes}); "
                            f"operators take {', '.join(DTYPES)}")
    shape = tuple(tensor.shape[:tensor.ndim])
    strides, step = [0] * tensor.ndim, 1
    for axis in reversed(range(tensor.ndim)):
        strides[axis] = tensor.strides[axis] if tensor.strides else step
        step *= shape[axis]
    return View((tensor.data or 0) + tensor.byte_offset, code, shape, tuple(strides), True,
                (capsule, value))


def _is_bool_of_another_library(value: Any) -> bool:
    # DLPack has had bools since 1.0 only; PyTorch's come as NumPy's, on the same memory.
    return str(getattr(value, "dtype", "")) == "torch.bool" and value.device.type == "cpu"


def view_of(name: str, value: Any) -> View:
    """The memory of `value`, which is not copied."""
    if isinstance(value, np.ndarray):
        return _check(name, _view_of_array(name, value))
    if _is_bool_of_another_library(value):
        return _check(name, _view_of_array(name, np.asarray(value)))
    if hasattr(value, "__dlpack__"):
        return _check(name, _view_of_dlpack(name, value))
    if hasattr(value, "__array_interface__"):
        return _check(name, _view_of_array(name, np.asarray(value)))
    raise _refuse(name, f"is a {type(value).__name__}; give a NumPy array, or anything with "
                        "__dlpack__ or __array_interface__")


def make_array(dtype: int, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros, aligned for any kernel."""
    array = np.zeros(shape, _NUMPY[dtype])
    return array.view(BFloat16) if dtype == 0 else array
