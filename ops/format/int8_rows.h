// SPDX-License-Identifier: Apache-2.0
#pragma once

// Int8Rows: activations quantised row by row (ops/linear/quantise.h), as products with int8 weights
// take them.

#include <cstddef>
#include <cstdint>

#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// The largest depth whose sum of int8 products fits an int32: the largest product is 128 · 128 =
// 2^14, and 2^17 of them would be 2^31, one too much.
inline constexpr size_t kInt8DepthMax = 131071;

struct Int8Rows {
    Rows<const int8_t> values;         // [num_rows, depth]
    const float* row_scale = nullptr;  // [num_rows]
    // [num_rows] Σ of the row's values; null: the products add them up again and again.
    const int32_t* row_sum = nullptr;

    bool given() const { return row_scale != nullptr; }

    // Rows [first, first + count).
    Int8Rows slice(size_t first, size_t count) const {
        return {values.slice(first, count),
                row_scale + first,
                row_sum == nullptr ? nullptr : row_sum + first};
    }
};

}  // namespace afd::ops
