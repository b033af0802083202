# SPDX-License-Identifier: Apache-2.0
"""What the operators' documents print as Python, taken from the documents themselves.

They are not part of this repository; AFD_SEEDS names their folder, else ../shared/seeds is looked
at. Where they are not, test_seed_listings.py has the same calls. Oracle: mla_np of tests/golden.
"""
import ast
import inspect
import json
import os
import pathlib
import re
import sys
import textwrap
import types

import mla_cases
import mla_np
import numpy as np
import pytest
import safetensors_np as st

import afd

FOLDER = pathlib.Path(os.environ.get(
    "AFD_SEEDS", pathlib.Path(__file__).resolve().parents[3] / "shared" / "seeds"))
TEXTS = {path.stem: path.read_text() for path in FOLDER.glob("*.md")}
# torch_npu.npu_NAME(argument, argument=default, ...) -> ...
PROTOTYPES = [pytest.param(match.group(1), match.group(0), id=match.group(1))
              for text in TEXTS.values()
              for match in re.finditer(r"^torch_npu\.npu_(\w+)\(.*?\)(?= ->)", text, re.M)]
LISTINGS = [pytest.param(textwrap.dedent(match.group(1)), id=f"{name}-{number}")
            for name, text in TEXTS.items()
            for number, match in enumerate(re.finditer(r"^ *```python\n(.*?)```", text,
                                                       re.M | re.S))
            if "torch.compile" not in match.group(1)]


class Tensor:
    """As much of a PyTorch tensor as the listings use; operators see its __dlpack__."""

    def __init__(self, array):
        self.array = array

    def npu(self):
        return self

    contiguous = npu

    def to(self, dtype):
        return Tensor(self.array.float32().astype(dtype))

    def __dlpack__(self, **_kwargs):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


def stand_ins():
    """torch and torch_npu: random numbers, and the cast to the layout of weights."""
    random = np.random.default_rng(1)
    torch = types.ModuleType("torch")
    torch.bfloat16, torch.int64 = "bfloat16", np.int64
    torch.rand = lambda *shape, dtype=None: Tensor(afd.bf16(random.random(shape, np.float32)))
    torch.npu = types.SimpleNamespace(config=types.SimpleNamespace())
    torch_npu = types.ModuleType("torch_npu")
    torch_npu.npu_format_cast = lambda tensor, _layout: Tensor(
        afd.bf16(mla_np.to_fractal_nz(np.asarray(tensor.array))))
    return {"torch": torch, "torch_npu": torch_npu}


@pytest.mark.parametrize("name, text", PROTOTYPES)
def test_a_call_takes_the_arguments_of_the_prototype(name, text):
    call = ast.parse(text, mode="eval").body
    wanted = [(argument.id, inspect.Parameter.empty) for argument in call.args]
    wanted += [(keyword.arg, ast.literal_eval(keyword.value)) for keyword in call.keywords]
    parameters = inspect.signature(getattr(afd, "npu_" + name)).parameters
    assert [argument for argument, _ in wanted] == list(parameters)[:len(wanted)]
    for argument, default in wanted:
        # What its document requires is optional here where a form without it exists.
        if default is not inspect.Parameter.empty:
            assert parameters[argument].default == default, argument


def test_the_example_of_a_worker_calls_what_there_is():
    """In the docstring of afd.FfnWorker. Oracle: the signatures."""
    text = "\n".join(re.findall(r"^        .*$", afd.FfnWorker.__doc__, re.M))
    calls = [node for node in ast.walk(ast.parse(textwrap.dedent(text)))
             if isinstance(node, ast.Call)]
    names = set()
    for call in calls:
        name = call.func.attr
        target = afd.FfnWorker if name == "FfnWorker" else getattr(afd.FfnWorker, name)
        itself = [] if name == "FfnWorker" else [None]
        inspect.signature(target).bind(*itself, *call.args,
                                       **{keyword.arg: keyword.value for keyword in call.keywords})
        names.add(name)
    assert names == {"FfnWorker", "ready", "batches", "give_back"}


@pytest.mark.parametrize("listing", LISTINGS)
def test_a_listing_runs_as_it_stands(listing, monkeypatch, capsys):
    for name, module in stand_ins().items():
        monkeypatch.setitem(sys.modules, name, module)
    source = listing.partition("    tensor([")[0].partition("\ntensor([")[0]
    names = {"afd": afd}
    exec(source.replace("torch_npu.npu_mla", "afd.npu_mla"), names)  # pylint: disable=exec-used
    assert capsys.readouterr().out.strip()
    call, = re.findall(r"afd\.(npu_\w+)\((.*)\)$", source.replace("torch_npu.npu_mla",
                                                                  "afd.npu_mla"), re.M)
    given = ast.parse(f"{call[0]}({call[1]})", mode="eval").body
    parameters = list(inspect.signature(getattr(afd, call[0])).parameters)
    values = {name: names[value.id] for name, value in zip(parameters, given.args)}
    values |= {keyword.arg: names[keyword.value.id] for keyword in given.keywords}
    arrays = {name: np.asarray(value.array) for name, value in values.items()
              if isinstance(value, Tensor)}
    attributes = {attribute["name"]: json.loads(attribute["default"])
                  for attribute in afd.record("mla_prolog_v3")["attributes"]}
    attributes |= {name: value for name, value in values.items() if name not in arrays}
    # Caches hold what was written; the rest of them is as it was.
    want = mla_np.mla_prolog_v3({name: array if name.endswith("cache") or array.dtype != np.uint16
                                 else st.from_bf16_bits(array)
                                 for name, array in arrays.items()}, attributes)
    for name, have in (("query", names["query_mla"]), ("query_rope", names["query_rope_mla"])):
        expected = st.to_bf16_bits(want[name]) if want[name].dtype != np.uint16 else want[name]
        assert mla_cases.difference(np.asarray(have), expected.reshape(have.shape)) == "", name
