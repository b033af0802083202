// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows of fp8 values, e4m3 (bias 7, no infinity, largest 448), with one fp32 scale for each block
// of 128 values; the last block of a row may be shorter.
//
//   s = max|x| / 448 over the block; q = e4m3(x / s), to nearest, half to even, clamped to 448
//   expanded: (float(q) · s) →bf16
//
// s = 0 (a block of zeros, or underflow): q = 0. A block with a NaN or infinity: s = NaN, q = 0, so
// that it expands to NaN. A row's bits depend on the row alone, and are the same with every
// processor.

#include <cstddef>

#include "ops/bf16.h"

namespace afd::ops {

inline constexpr size_t kFp8BlockValues = 128;

// Bytes of a row: `count` values, then the scales of its blocks, without padding.
constexpr size_t fp8_row_bytes(size_t count) {
    return count + (count + kFp8BlockValues - 1) / kFp8BlockValues * sizeof(float);
}

// x [count], row [fp8_row_bytes(count)], at any address.
void encode_fp8_row(const Bf16* x, size_t count, std::byte* row);

// What a row that was encoded expands to: y = expand(encode(x)). y may be x.
void round_row_to_fp8(const Bf16* x, size_t count, Bf16* y);

// Takes every pattern of bytes; a value that is no number (0x7f) is taken for 480.
void expand_fp8_row(const std::byte* row, size_t count, Bf16* x);

}  // namespace afd::ops
