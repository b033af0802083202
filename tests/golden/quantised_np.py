"""Quantised linears in NumPy: what a checkpoint of afd-quantize holds, and how it multiplies.

    int8  X.weight I8 [N, K], X.weight_scale F32 [N]. Each row of the activations is quantised:
          s = max|x| / 127, q = rint(x / s) half to even; y = fp32(sum q.q) * s * scale[n], each
          product rounded to fp32.
    int4  X.weight U8 [N, K / 2], even k in the low nibble, two's complement; X.weight_scale BF16
          or F16 [N, K / group]. The weight is q * scale rounded to bf16, from there on like any bf16
          one.

And how DeepSeek-V3 is released:

    fp8   X.weight F8_E4M3 [N, K], X.weight_scale_inv [ceil(N / 128), ceil(K / 128)] F32, or
          F8_E8M0: 2^(byte - 127). The weight is the value times the scale: exactly, in an MLP;
          elsewhere rounded to fp32, then to bf16.
"""
import dataclasses

import numpy as np

import safetensors_np

Array = np.ndarray


@dataclasses.dataclass
class Int8Weight:
    values: Array   # [N, K], whole numbers
    scale: Array    # [N] float32

    def dequantised(self) -> Array:
        return self.values * self.scale.astype(np.float64)[:, None]

    def linear(self, x: Array) -> Array:
        """x [T, K] of bf16 values -> [T, N] before its rounding to bf16."""
        quantised, row_scale = quantise_rows(x)
        sums = (quantised @ self.values.T).astype(np.float32)
        return (sums * row_scale[:, None] * self.scale).astype(np.float64)


def quantise_rows(x: Array) -> tuple[Array, Array]:
    """x [T, K] -> whole numbers in [-127, 127] and float32 scales [T]."""
    x = x.astype(np.float32)
    scale = np.abs(x).max(-1) / np.float32(127)
    divisor = np.where(scale > 0, scale, np.float32(1))
    quantised = np.clip(np.rint(x / divisor[:, None]), -127, 127)
    return np.where(scale[:, None] > 0, quantised, 0).astype(np.float64), scale


def dequantise_int4(packed: Array, scale: Array, group: int) -> Array:
    """packed [N, K / 2] uint8, scale [N, ceil(K / group)] -> [N, K] on the bf16 grid."""
    nibbles = np.stack((packed & 15, packed >> 4), -1).reshape(len(packed), -1).astype(np.int64)
    values = np.where(nibbles < 8, nibbles, nibbles - 16)
    wide = np.repeat(scale, group, axis=-1)[:, :values.shape[1]]
    return safetensors_np.round_bf16(values.astype(np.float32) * wide).astype(np.float64)


FP8_EDGE = 128


def e4m3_table() -> Array:
    """The 256 values of e4m3, by their bytes; the two that are no numbers are NaN."""
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0 ** -9,
                         (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    magnitude[[127, 255]] = np.nan
    return np.where(byte < 128, magnitude, -magnitude)


def over_blocks(scale: Array, shape: tuple[int, ...]) -> Array:
    """scale [ceil(N / 128), ceil(K / 128)] -> one for each element of a matrix of this shape."""
    wide = np.repeat(np.repeat(scale, FP8_EDGE, axis=0), FP8_EDGE, axis=1)
    return wide[:shape[0], :shape[1]]


def quantise_fp8(values: Array, is_power: bool) -> tuple[Array, Array]:
    """values [N, K] -> bytes of e4m3, nearest, and the scales: float32, or as bytes of e8m0."""
    rows, columns = (-(-extent // FP8_EDGE) for extent in values.shape)
    scale = np.zeros((rows, columns), np.float32)
    for i in range(rows):
        for j in range(columns):
            block = values[i * FP8_EDGE:(i + 1) * FP8_EDGE, j * FP8_EDGE:(j + 1) * FP8_EDGE]
            scale[i, j] = np.abs(block).max() / 448
    exponent = np.ceil(np.log2(scale)).astype(int)
    if is_power:
        scale = (2.0 ** exponent).astype(np.float32)
    table = e4m3_table()[:127]
    scaled = np.abs(values / over_blocks(scale, values.shape))
    middles = (table[1:] + table[:-1]) / 2
    nearest = np.searchsorted(middles, scaled).astype(np.uint8)
    nearest |= np.where(values < 0, 128, 0).astype(np.uint8)
    return nearest, (exponent + 127).astype(np.uint8) if is_power else scale


def dequantise_fp8(packed: Array, scale: Array, is_exact: bool) -> Array:
    """packed [N, K] bytes of e4m3, scale [ceil(N / 128), ceil(K / 128)] -> [N, K] values."""
    if scale.dtype == np.uint8:
        scale = (2.0 ** (scale.astype(np.float64) - 127)).astype(np.float32)
    if is_exact:
        return e4m3_table()[packed] * over_blocks(scale.astype(np.float64), packed.shape)
    values = e4m3_table()[packed].astype(np.float32) * over_blocks(scale, packed.shape)
    return safetensors_np.round_bf16(values).astype(np.float64)
