# SPDX-License-Identifier: Apache-2.0
"""libafd_ops through its C interface (afd_ops.h)."""
import ctypes
import os
import pathlib

INTERFACE = "libafd_ops.so.0.1"
RANK_MAX = 4
ALIGNMENT = 64


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("dtype", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("shape", ctypes.c_uint64 * RANK_MAX),
                ("strides", ctypes.c_uint64 * RANK_MAX)]


class Options(ctypes.Structure):
    _fields_ = [("is_reference", ctypes.c_int32), ("num_threads", ctypes.c_uint32),
                ("numeric_class", ctypes.c_char_p), ("memory_max", ctypes.c_uint64)]


class Failure(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("parameter", ctypes.c_char * 64),
                ("text", ctypes.c_char * 1024)]


def _path() -> str:
    """AFD_OPS_LIBRARY, else the one beside the package, else the system's."""
    named = os.environ.get("AFD_OPS_LIBRARY")
    if named:
        return named
    beside = pathlib.Path(__file__).resolve().parent / INTERFACE
    return str(beside) if beside.exists() else INTERFACE


def _load() -> ctypes.CDLL:
    path = _path()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"afd: cannot load {path}: {error}; install the library, or set "
                          "AFD_OPS_LIBRARY to its path") from error
    call = ctypes.c_void_p
    text = ctypes.c_char_p
    for name, result, arguments in (
            ("version", text, []),
            ("name", text, [ctypes.c_size_t]),
            ("describe", text, [text]),
            ("class", text, [ctypes.c_size_t]),
            ("query", ctypes.c_int, [text, text, ctypes.POINTER(Tensor), ctypes.c_size_t,
                                     ctypes.POINTER(Options), ctypes.POINTER(call),
                                     ctypes.POINTER(Failure)]),
            ("workspace_bytes", ctypes.c_size_t, [call]),
            ("operations", ctypes.c_double, [call]),
            ("num_outputs", ctypes.c_size_t, [call]),
            ("output", Tensor, [call, ctypes.c_size_t]),
            ("run", ctypes.c_int, [call, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
                                   ctypes.c_size_t, ctypes.POINTER(Failure)]),
            ("machine_limits", None, [ctypes.c_uint32, ctypes.POINTER(ctypes.c_double),
                                      ctypes.POINTER(ctypes.c_double)]),
            ("free", None, [call])):
        function = getattr(library, "afd_ops_" + name)
        function.restype = result
        function.argtypes = arguments
    return library


library = _load()


def names_by(function) -> list[str]:
    """What a function of an index gives until it gives nothing."""
    names = []
    while (name := function(len(names))) is not None:
        names.append(name.decode())
    return names
