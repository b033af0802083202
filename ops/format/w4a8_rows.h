// SPDX-License-Identifier: Apache-2.0
#pragma once

// W4a8Rows: activations quantised row by row, arranged as products with int4 panels take them
// (Int4Rows::kInt8).
//
// A panel has eight weights of a column in four bytes (ops/format/packed_shape.h): their low
// nibbles are elements 0, 4, 1, 5 and their high ones 2, 6, 3, 7. So each eight elements of a row
// stand in the order 0, 4, 1, 5, 2, 6, 3, 7, and a product of four bytes by four needs no shuffle.
// One row, little-endian:
//   [round_up(K, 64)] int8, zeros from K on | [ceil(K / group)] int32, −8 · Σ of the group's values
// The second part is what a product begins with that takes q + 8, 0 to 15, for q. One whose weights
// have a zero point begins with (8 + zero) / 8 of it, exactly.

#include <cstddef>
#include <cstdint>

#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// Bytes before the sums of a row, and of the row.
constexpr size_t w4a8_values_bytes(size_t depth) {
    return (depth + 63) / 64 * 64;
}
constexpr size_t w4a8_row_bytes(size_t depth, size_t group_size) {
    return w4a8_values_bytes(depth) + (depth + group_size - 1) / group_size * sizeof(int32_t);
}

struct W4a8Rows {
    // [num_rows, K], each row followed by its sums at w4a8_values_bytes(K); stride: a multiple
    // of 4.
    Rows<const int8_t> values;
    const float* row_scale = nullptr;  // [num_rows]

    bool given() const { return row_scale != nullptr; }

    // Rows [first, first + count).
    W4a8Rows slice(size_t first, size_t count) const {
        return {values.slice(first, count), row_scale + first};
    }
};

}  // namespace afd::ops
