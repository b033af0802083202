# SPDX-License-Identifier: Apache-2.0
"""afd.read_tensors. Oracle: safetensors_np of tests/golden, which shares no code with it."""
import json
import pathlib
import struct

import numpy as np
import pytest
import safetensors_np as st

import afd

DEMO_MODEL = pathlib.Path(__file__).parents[2] / "demo_model"


def write(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_a_models_tensors_are_there_by_their_names():
    tensors = afd.read_tensors(DEMO_MODEL)
    expected = st.read(DEMO_MODEL / "model.safetensors")
    assert sorted(tensors) == sorted(expected)
    for name, tensor in tensors.items():
        assert not tensor.flags.writeable
        is_bf16 = isinstance(tensor, afd.BFloat16)
        assert np.array_equal(tensor.float32() if is_bf16 else tensor, expected[name])
    assert isinstance(tensors["model.layers.1.mlp.experts.3.up_proj.weight"], afd.BFloat16)


def test_every_file_of_a_model_is_read_and_unknown_dtypes_are_left_out(tmp_path):
    write(tmp_path / "a.safetensors", {
        "__metadata__": {"format": "pt"},
        "scale": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "codes": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [8, 12]}},
        np.array([1.5, -2], np.float32).tobytes() + bytes(4))
    write(tmp_path / "b.safetensors", {
        "ids": {"dtype": "I64", "shape": [1, 1], "data_offsets": [0, 8]}}, struct.pack("<q", -7))
    tensors = afd.read_tensors(tmp_path)
    assert sorted(tensors) == ["ids", "scale"]
    assert tensors["scale"].tolist() == [1.5, -2.0]
    assert tensors["ids"].tolist() == [[-7]]


@pytest.mark.parametrize("header, why", [
    (b"no json", "Expecting value"),
    ({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, "cannot reshape"),
    ({"x": {"shape": [3]}}, "'dtype'"),
    ([1], "no attribute 'items'")])
def test_a_damaged_file_is_named(tmp_path, header, why):
    write(tmp_path / "model.safetensors", header, bytes(8))
    with pytest.raises(afd.InvalidArgument, match=f"model.safetensors is no safetensors.*{why}"):
        afd.read_tensors(tmp_path)


def test_a_header_that_is_too_long_or_cut_off_is_not_believed(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(afd.InvalidArgument, match="a header of 1152921504606846976 bytes"):
        afd.read_tensors(tmp_path)
    for cut_off in (b"abc", b""):
        (tmp_path / "model.safetensors").write_bytes(cut_off)
        with pytest.raises(afd.InvalidArgument, match="model.safetensors is no safetensors file"):
            afd.read_tensors(tmp_path)
    with pytest.raises(afd.NotFound, match="there is no .*safetensors in "):
        afd.read_tensors(tmp_path / "nothing")
