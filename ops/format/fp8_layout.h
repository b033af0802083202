// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a row of fp8 values lies in memory: e4m3 (bias 7, no infinity, largest 448), with one fp32
// scale for each block of 128 values; the last block of a row may be shorter.
//
//   s = max|x| / 448 over the block; q = e4m3(x / s), to nearest, half to even, clamped to 448
//   expanded: (float(q) · s) →bf16
//
// s = 0 (a block of zeros, or underflow): q = 0. A block with a NaN or infinity: s = NaN, q = 0, so
// that it expands to NaN. A row's bits depend on the row alone, and are the same with every
// processor.

#include <cstddef>

namespace afd::ops {

inline constexpr size_t kFp8BlockValues = 128;

// Bytes of a row: `count` values, then the scales of its blocks, without padding.
constexpr size_t fp8_row_bytes(size_t count) {
    return count + (count + kFp8BlockValues - 1) / kFp8BlockValues * sizeof(float);
}

}  // namespace afd::ops
