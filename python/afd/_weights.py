# SPDX-License-Identifier: Apache-2.0
"""Tensors of *.safetensors files, mapped and not copied."""
import json
import pathlib

import numpy as np

from afd._errors import InvalidArgument, NotFound
from afd._tensors import BFloat16

_HEADER_BYTES_MAX = 100 << 20
_DTYPES = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32, "F64": np.float64,
           "I8": np.int8, "I32": np.int32, "I64": np.int64, "U8": np.uint8, "BOOL": np.bool_}


def read_tensors(directory) -> dict[str, np.ndarray]:
    """Name -> array (BFloat16 for bf16), read-only, of every *.safetensors of a model's directory.

    Tensors of other dtypes are left out. Errors: NotFound; InvalidArgument: a file is damaged.
    """
    files = sorted(pathlib.Path(directory).glob("*.safetensors"))
    if not files:
        raise NotFound(f"there is no *.safetensors in {directory}", "directory")
    return {name: tensor for file in files for name, tensor in _tensors_of(file)}


def _tensors_of(file: pathlib.Path):
    try:
        data = np.memmap(file, np.uint8, "r")
        size = int(data[:8].view("<u8")[0])
        if size > _HEADER_BYTES_MAX:
            raise ValueError(f"a header of {size} bytes is announced")
        header = json.loads(data[8:8 + size].tobytes())
        for name, entry in header.items():
            if name == "__metadata__" or entry["dtype"] not in _DTYPES:
                continue
            begin, end = entry["data_offsets"]
            array = data[8 + size + begin:8 + size + end].view(_DTYPES[entry["dtype"]])
            array = array.reshape(entry["shape"])
            yield name, array.view(BFloat16) if entry["dtype"] == "BF16" else np.asarray(array)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InvalidArgument(f"{file} is no safetensors file: {error}", "directory") from error
