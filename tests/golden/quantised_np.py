"""Quantised linears in NumPy: what a checkpoint of afd-quantize holds, and how it multiplies.

    int8  X.weight I8 [N, K], X.weight_scale F32 [N]. Each row of the activations is quantised:
          s = max|x| / 127, q = rint(x / s) half to even; y = fp32(sum q.q) * s * scale[n], each
          product rounded to fp32.
    int4  X.weight U8 [N, K / 2], even k in the low nibble, two's complement; X.weight_scale BF16
          or F16 [N, K / group]. The weight is q * scale rounded to bf16, from there on like any bf16 one.
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
