# SPDX-License-Identifier: Apache-2.0
"""The operators as functions, made from their records."""
import collections
import inspect
import json
import keyword
import sys
from typing import Any

import numpy as np

from afd import _native
from afd._errors import InvalidArgument, NotFound, suggestion
from afd._tensors import DTYPES, make_array

_OPTIONS = ("reference", "num_threads", "numeric_class", "memory_max", "out")
_THREADS_MAX, _MEMORY_MAX = 1024, 2 ** 64 - 1


def operators() -> list[str]:
    """The names of all operators, sorted."""
    return _native.operators()


def numeric_classes() -> list[str]:
    """Those that this processor can run, oldest instructions first.

    Where they are native that is the order of their speed, but avx512 is faster than avx512-bf16
    on Intel's processors. Without AMX the last one, "amx", is emulated, and slow. The fastest is
    what an operator takes if no numeric_class is given.
    """
    return _native.numeric_classes()


def record(name: str) -> dict:
    """An operator's record: attributes, tensors, rules."""
    text = _native.describe(name)
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
    """An attribute as JSON has it. An array without axes is its number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
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
        self.result = collections.namedtuple(result_name(name), self.outputs)
        self.result.__module__ = "afd"
        self.__signature__ = signature_of(self.record)
        self.__doc__ = describe(name)

    def __repr__(self) -> str:
        return f"<operator afd.{self.__name__}{self.__signature__}>"

    def __reduce__(self):
        # For another process it is the one of that name there.
        return _operator_of_the_module, (self.__name__,)

    def __call__(self, *args, **kwargs):
        call = Call(self, args, kwargs)
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

    def views(self, tensors: dict) -> list[tuple[str, _native.TensorView]]:
        """Windows of several workers may be a list, with one array a worker."""
        views = []
        for name, value in tensors.items():
            is_list = name.endswith("_windows") and isinstance(value, (list, tuple))
            values = value if is_list else [value]
            for each in values:
                view = _native.view_of(name, each)
                if self.is_in_place(name) and not view.is_writable:
                    raise InvalidArgument(f"{self.__name__}: {name} is read-only; it is written "
                                          "in place", name)
                views.append((name, view))
        return views

    def is_in_place(self, name: str) -> bool:
        return self._tensors[name]["role"].startswith("in place")

    def results_of(self, outputs: dict):
        if not self.outputs:
            return None
        return self.result(*(outputs.get(name) for name in self.outputs))


def _operator_of_the_module(name: str) -> Operator:
    return getattr(sys.modules["afd"], name)


class Call:
    """A call that is judged and has its memory; run() may be repeated."""

    def __init__(self, operator: Operator, args: tuple, kwargs: dict):
        self._operator = operator
        tensors, attributes, options = operator.split(args, kwargs)
        out = options.pop("out", None) or {}
        for name in out:
            if name not in operator.outputs:
                raise InvalidArgument(f"{operator.__name__}: out has {name}; outputs are "
                                      f"{', '.join(operator.outputs)}", name)
        plain = {name: _plain(name, value) for name, value in attributes.items()}
        views = operator.views(tensors)
        self.in_place = [view for name, view in views if operator.is_in_place(name)]
        self._native = _native.OperatorCall(operator.__name__, json.dumps(plain),
                                            views, **_options(**options),
                                            outputs_given=[name for name in out
                                                           if out[name] is not None])
        self._make_outputs(out)
        self.run = self._native.run

    def _make_outputs(self, out: dict) -> None:
        self.arrays, views = {}, []
        for index, (name, dtype, shape) in enumerate(self._native.outputs()):
            array = out.get(name)
            if array is None:
                array = make_array(dtype, shape)
            view = _native.view_of(name, array)
            if not self._native.takes(index, view):
                raise InvalidArgument(
                    f"{self._operator.__name__}: out[{name!r}] must be contiguous, writable "
                    f"{DTYPES[dtype]} {list(shape)}", name)
            self.arrays[name] = array
            views.append(view)
        self._native.write_to(views)

    def results(self):
        return self._operator.results_of(self.arrays)

    @property
    def num_bytes(self) -> int:
        """Of all tensors, in and out."""
        return self._native.num_bytes

    @property
    def operations(self) -> float:
        return self._native.operations


def _options(reference: bool = False, num_threads: int = 1, numeric_class: str | None = None,
             memory_max: int = 0) -> dict:
    if numeric_class is not None and not isinstance(numeric_class, str):
        raise InvalidArgument(f"numeric_class is a {type(numeric_class).__name__}; it must be a "
                              f"string, one of {', '.join(numeric_classes())}", "numeric_class")
    return {"reference": bool(reference), "numeric_class": numeric_class,
            "num_threads": _number("num_threads", num_threads, _THREADS_MAX),
            "memory_max": _number("memory_max", memory_max, _MEMORY_MAX)}


def _number(name: str, value: Any, most: int) -> int:
    plain = _plain(name, value)
    if not isinstance(plain, int) or not 0 <= plain <= most:
        raise InvalidArgument(f"{name} is {value}; allowed are 0 to {most}", name)
    return plain


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


def make_operators() -> dict[str, Any]:
    """What the module has of them by name: the operators, also as npu_..., and the classes of their
    results."""
    made: dict[str, Any] = {}
    for name in operators():
        operator = Operator(name)
        made[name] = operator
        # So it is called as a function of a framework.
        made["npu_" + name] = operator
        if operator.outputs:
            made[result_name(name)] = operator.result
    return made
