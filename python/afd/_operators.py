# SPDX-License-Identifier: Apache-2.0
"""The operators as functions, made from their records."""
import collections
import ctypes
import inspect
import json
import keyword
import threading
from typing import Any, Callable

import numpy as np

from afd import _library as lib
from afd._errors import InvalidArgument, NotFound, error_of, suggestion
from afd._tensors import DTYPES, make_array, view_of

_OPTIONS = ("reference", "num_threads", "numeric_class", "memory_max", "out")
_scratch = threading.local()


def operators() -> list[str]:
    """The names of all operators, sorted."""
    return lib.names_by(lib.library.afd_ops_name)


def numeric_classes() -> list[str]:
    """Those that this processor can run, slowest first."""
    return lib.names_by(getattr(lib.library, "afd_ops_class"))


def record(name: str) -> dict:
    """An operator's record: attributes, tensors, rules."""
    text = lib.library.afd_ops_describe(name.encode())
    if text is None:
        raise NotFound(f"there is no operator {name[:60]}; there are {', '.join(operators())}"
                       + suggestion(name, operators()), name)
    return json.loads(text)


def is_read(tensor: dict) -> bool:
    return not tensor["role"].startswith("output")


def is_optional(tensor: dict) -> bool:
    return tensor["role"].endswith("optional")


def default_of(attribute: dict) -> Any:
    """What is taken if the attribute is not given; inspect.Parameter.empty: nothing."""
    text = attribute["default"]
    return json.loads(text) if text else inspect.Parameter.empty


def _plain(name: str, value: Any) -> Any:
    """An attribute as JSON has it."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(name, element) for element in value]
    if isinstance(value, (float, np.floating)):
        if not np.isfinite(value):
            raise InvalidArgument(f"{name} is {value}; it must be a finite number", name)
        return float(value)
    if isinstance(value, str):
        return value
    try:
        return value.__index__()
    except AttributeError:
        raise InvalidArgument(f"{name} is a {type(value).__name__}; attributes are numbers, "
                              "strings, bools and lists of integers", name) from None


def _workspace(num_bytes: int) -> int:
    """The address of aligned scratch of this thread, grown as needed."""
    if getattr(_scratch, "memory", None) is None or _scratch.memory.size < num_bytes + lib.ALIGNMENT:
        _scratch.memory = np.empty(num_bytes + lib.ALIGNMENT, np.uint8)
    address = _scratch.memory.ctypes.data
    return -(-address // lib.ALIGNMENT) * lib.ALIGNMENT


class Operator:
    """One operator; called like a function."""

    def __init__(self, name: str):
        self.record = record(name)
        self.__name__ = self.__qualname__ = name
        self.__module__ = "afd"
        self._tensors = {tensor["name"]: tensor for tensor in self.record["tensors"]
                         if is_read(tensor)}
        self._known = [*self._tensors, *(each["name"] for each in self.record["attributes"]),
                       *_OPTIONS]
        self.outputs = [tensor["name"] for tensor in self.record["tensors"]
                        if not is_read(tensor)]
        self._result = collections.namedtuple(result_name(name), self.outputs)
        self._result.__module__ = "afd"
        self.__signature__ = signature_of(self.record)
        self.__doc__ = describe(name)

    def __repr__(self) -> str:
        return f"<operator afd.{self.__name__}{self.__signature__}>"

    def __call__(self, *args, **kwargs):
        with Call(self, args, kwargs) as call:
            call.run()
            return call.results()

    def split(self, args: tuple, kwargs: dict) -> tuple[dict, dict, dict]:
        """Arguments as tensors, attributes and options."""
        if len(args) > len(self._tensors):
            raise InvalidArgument(
                f"{self.__name__}: {len(args)} arguments without a name are given; only tensors "
                f"are, of which there are {len(self._tensors)}")
        given = dict(zip(self._tensors, args))
        for name in kwargs:
            if name in given:
                raise InvalidArgument(f"{self.__name__}: {name} is given twice", name)
        given.update(kwargs)
        for name in given:
            if name not in self._known:
                raise InvalidArgument(
                    f"{self.__name__}: there is no argument {name[:60]}; there are "
                    f"{', '.join(self._known)}{suggestion(name, self._known)}", name)
        options = {name: given.pop(name) for name in _OPTIONS if name in given}
        tensors = {name: value for name, value in given.items()
                   if name in self._tensors and value is not None}
        attributes = {name: value for name, value in given.items() if name not in self._tensors}
        return tensors, attributes, options

    def views(self, tensors: dict) -> list[tuple[str, Any]]:
        """Windows of several workers may be a list, with one array a worker."""
        views = []
        for name, value in tensors.items():
            is_list = name.endswith("_windows") and isinstance(value, (list, tuple))
            values = value if is_list else [value]
            for each in values:
                view = view_of(name, each)
                if self._tensors[name]["role"].startswith("in place") and not view.is_writable:
                    raise InvalidArgument(f"{self.__name__}: {name} is read-only; it is written "
                                          "in place", name)
                views.append((name, view))
        return views

    def results_of(self, outputs: dict):
        if not self.outputs:
            return None
        return self._result(*(outputs.get(name) for name in self.outputs))


class Call:
    """A call that is judged and has its memory; run() may be repeated."""

    def __init__(self, operator: Operator, args: tuple, kwargs: dict):
        self._handle = ctypes.c_void_p()
        self._operator = operator
        tensors, attributes, options = operator.split(args, kwargs)
        self._out = options.pop("out", None) or {}
        self._kept = operator.views(tensors)  # Alive until the call is over.
        plain = {name: _plain(name, value) for name, value in attributes.items()}
        failure = lib.Failure()
        code = lib.library.afd_ops_query(
            operator.__name__.encode(), json.dumps(plain).encode(),
            _c_tensors(self._kept), len(self._kept), _c_options(**options),
            ctypes.byref(self._handle), ctypes.byref(failure))
        _raise(code, failure)
        self.workspace_bytes = lib.library.afd_ops_workspace_bytes(self._handle)
        self._make_outputs()

    def _make_outputs(self) -> None:
        library = lib.library
        self.arrays = {}
        for name in self._out:
            if name not in self._operator.outputs:
                raise InvalidArgument(f"{self._operator.__name__}: out has {name}; outputs are "
                                      f"{', '.join(self._operator.outputs)}", name)
        pointers = []
        for index in range(library.afd_ops_num_outputs(self._handle)):
            made = library.afd_ops_output(self._handle, index)
            name, shape = made.name.decode(), tuple(made.shape[:made.rank])
            array = self._out.get(name)
            if array is None:
                array = make_array(made.dtype, shape)
            view = view_of(name, array)
            is_contiguous = 0 in shape or view.strides == tuple(made.strides[:made.rank])
            if (view.dtype, view.shape, view.is_writable) != (made.dtype, shape, True) or \
                    not is_contiguous:
                raise InvalidArgument(
                    f"{self._operator.__name__}: out[{name!r}] must be contiguous, writable "
                    f"{DTYPES[made.dtype]} {list(shape)}", name)
            self._kept.append((name, view))
            self.arrays[name] = array
            pointers.append(view.data)
        self._pointers = (ctypes.c_void_p * len(pointers))(*pointers)

    def run(self) -> None:
        failure = lib.Failure()
        code = lib.library.afd_ops_run(self._handle, self._pointers,
                                       _workspace(self.workspace_bytes), self.workspace_bytes,
                                       ctypes.byref(failure))
        _raise(code, failure)

    def results(self):
        return self._operator.results_of(self.arrays)

    @property
    def num_bytes(self) -> int:
        """Of all tensors, in and out."""
        return sum(int(np.prod(view.shape)) * (2, 2, 4, 1, 4, 8, 1, 1)[view.dtype]
                   for _, view in self._kept)

    @property
    def operations(self) -> float:
        return lib.library.afd_ops_operations(self._handle)

    def __enter__(self) -> "Call":
        return self

    def __exit__(self, *_unused) -> None:
        self.close()

    def close(self) -> None:
        lib.library.afd_ops_free(self._handle)
        self._handle = ctypes.c_void_p()

    def __del__(self):
        if self._handle:
            self.close()


def _c_tensors(views: list) -> Any:
    tensors = (lib.Tensor * len(views))()
    for tensor, (name, view) in zip(tensors, views):
        tensor.name, tensor.data = name.encode(), view.data
        tensor.dtype, tensor.rank = view.dtype, len(view.shape)
        tensor.shape[:tensor.rank] = view.shape
        tensor.strides[:tensor.rank] = view.strides
    return tensors


def _c_options(reference: bool = False, num_threads: int = 1, numeric_class: str | None = None,
               memory_max: int = 0) -> lib.Options:
    for name, value, most in (("num_threads", num_threads, 1024),
                              ("memory_max", memory_max, 2 ** 64 - 1)):
        if not 0 <= value <= most:
            raise InvalidArgument(f"{name} is {value}; allowed are 0 to {most}", name)
    return lib.Options(int(bool(reference)), num_threads,
                       None if numeric_class is None else numeric_class.encode(), memory_max)


def _raise(code: int, failure: lib.Failure) -> None:
    if code != 0:
        raise error_of(code, failure.text.decode(errors="replace"), failure.parameter.decode())


def result_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_")) + "Result"


def signature_of(made: dict) -> inspect.Signature:
    """Tensors first, by place or by name; attributes and options by name."""
    by_place, by_name = [], []
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for tensor in made["tensors"]:
        if is_read(tensor):
            # Python wants no parameter without a default behind one with.
            late = is_optional(tensor) or any(p.default is None for p in by_place)
            by_place.append(inspect.Parameter(tensor["name"], kind,
                                              default=None if late else inspect.Parameter.empty))
    for attribute in made["attributes"]:
        assert not keyword.iskeyword(attribute["name"])
        by_name.append(inspect.Parameter(attribute["name"], inspect.Parameter.KEYWORD_ONLY,
                                         default=default_of(attribute)))
    for name, default in (("reference", False), ("num_threads", 1), ("numeric_class", None),
                          ("memory_max", 0), ("out", None)):
        by_name.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    return inspect.Signature(by_place + by_name)


def describe(name: str) -> str:
    """What an operator computes, takes and gives, as text."""
    made = record(name)
    lines = [f"{name}: {made['summary']}", "", "    " + made["formula"], "",
             f"Source: {made['source']}", ""]
    for title, wanted in (("Tensors:", is_read), ("Returns:", lambda tensor: not is_read(tensor))):
        entries = [tensor for tensor in made["tensors"] if wanted(tensor)]
        lines += [title] * bool(entries)
        for tensor in entries:
            role = tensor["role"].removeprefix("output").removeprefix(", ")
            about = [role] * bool(role) + [" or ".join(tensor["dtypes"]) + " " + tensor["shape"]]
            lines.append(f"    {tensor['name']} ({', '.join(about)}): {tensor['meaning']}")
        lines += [""] * bool(entries)
    if made["attributes"]:
        lines.append("Attributes:")
    for attribute in made["attributes"]:
        about = [attribute["kind"],
                 "default " + attribute["default"] if attribute["default"] else "required"]
        about += [attribute["allowed"]] * bool(attribute["allowed"])
        lines.append(f"    {attribute['name']} ({', '.join(about)}): {attribute['meaning']}")
    if made["rules"]:
        lines += ["", "Rules:"] + ["    " + rule for rule in made["rules"]]
    return "\n".join(lines)


def make_operators() -> dict[str, Callable]:
    return {name: Operator(name) for name in operators()}
