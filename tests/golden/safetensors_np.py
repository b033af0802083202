"""Reads and writes safetensors files with NumPy only.

BF16 tensors are float32 arrays in memory when read with `widen`, else their raw uint16 words.
Writing takes (dtype name, array) pairs, so that BF16 is asked for by name.
"""
import json
import pathlib
import struct

import numpy as np

NUMPY_OF = {"F8_E4M3": np.uint8, "F8_E8M0": np.uint8, "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "F16": np.float16, "I16": np.int16,
            "U16": np.uint16, "BF16": np.uint16, "F32": np.float32, "I32": np.int32,
            "U32": np.uint32, "F64": np.float64, "I64": np.int64, "U64": np.uint64}


def to_bf16_bits(x: np.ndarray) -> np.ndarray:
    """uint16 words of float32 values rounded once, half to even; NaN stays a quiet NaN."""
    x = np.ascontiguousarray(x, dtype=np.float32)
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    rounded = np.where(np.isnan(x), (bits >> np.uint32(16)) | np.uint32(0x40), rounded)
    return rounded.astype(np.uint16)


def from_bf16_bits(bits: np.ndarray) -> np.ndarray:
    """float32 values of bf16 words."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def round_bf16(x: np.ndarray) -> np.ndarray:
    """float32 values on the bf16 grid."""
    return from_bf16_bits(to_bf16_bits(x))


def write(path: pathlib.Path, tensors: dict[str, tuple[str, np.ndarray]],
          metadata: dict[str, str] | None = None) -> int:
    """Writes `tensors` in the given order and returns the bytes of data.

    A float array under "BF16" is rounded; a uint16 array is taken as words. The header is padded
    with spaces to a multiple of 8, so that every tensor of an even size is aligned.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    blobs, end = [], 0
    for name, (dtype, array) in tensors.items():
        if dtype == "BF16" and array.dtype != np.uint16:
            array = to_bf16_bits(array)
        blob = np.ascontiguousarray(array, dtype=NUMPY_OF[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [end, end + len(blob)]}
        blobs.append(blob)
        end += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            file.write(blob)
    return end


def read(path: pathlib.Path, widen: bool = True) -> dict[str, np.ndarray]:
    """All tensors of one file; with `widen`, BF16 and F16 become float32."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[begin:end], dtype=NUMPY_OF[entry["dtype"]])
        array = array.reshape(entry["shape"])
        if widen and entry["dtype"] == "BF16":
            array = from_bf16_bits(array)
        elif widen and entry["dtype"] == "F16":
            array = array.astype(np.float32)
        tensors[name] = array
    return tensors


def read_metadata(path: pathlib.Path) -> dict[str, str]:
    """The strings of a file's `__metadata__`."""
    data = pathlib.Path(path).read_bytes()
    header = json.loads(data[8:8 + struct.unpack_from("<Q", data)[0]])
    return header.get("__metadata__", {})


def read_model(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint folder, in one file or in the shards of its index."""
    folder = pathlib.Path(folder)
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return read(folder / "model.safetensors")
    files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        tensors.update(read(folder / file))
    return tensors
