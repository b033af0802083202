// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference of a quantised KV cache: what of a row comes back (ops/attention/kv_tiles.h has the
// formulas). Scales, quotients and products are fp32, as they are stored; values are doubles.

#include <cstddef>
#include <span>

#include "ops/format/kv_dtype.h"
#include "ops/reference/matrix.h"

namespace afd::ops::reference {

// Columns [first, first + count) of every row, a tile after the other, to what a reader gets.
// REQUIRES: dtype is not bf16.
void through_tiles(KvDtype dtype, size_t first, size_t count, Matrix& rows);

// The same with a factor for each column of [first, first + scales.size()).
void through_channels(std::span<const float> scales, size_t first, Matrix& rows);

}  // namespace afd::ops::reference
