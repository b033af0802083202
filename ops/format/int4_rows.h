// SPDX-License-Identifier: Apache-2.0
#pragma once

// Int4Rows: what the rows are that products with int4 weights multiply. It is chosen by whoever
// serves a model, not by its checkpoint, and is a part of the numeric class, as rows that are
// rounded to int8 (4-bit weights, 8-bit activations) give other results.
//
//   bf16   As they are; products as the numeric class says (ops/format/numeric_class.h).
//   int8   Quantised per row (ops/linear/quantise.h). With i[g] = Σ x·(q - zero) over group g of
//          the depth, an exact int32, and groups ascending: sum = fma(scale[n, g], float(i[g]),
//          sum), from 0; y = sum · row scale. The same bits in every numeric class, whatever the
//          scales are.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace afd::ops {

enum class Int4Rows : uint8_t { kBf16 = 0, kInt8 = 1 };

inline constexpr std::array kInt4Rows = {Int4Rows::kBf16, Int4Rows::kInt8};

constexpr std::string_view name_of(Int4Rows rows) {
    return rows == Int4Rows::kInt8 ? "int8" : "bf16";
}

constexpr std::optional<Int4Rows> parse_int4_rows(std::string_view name) {
    for (const Int4Rows rows : kInt4Rows) {
        if (name == name_of(rows)) return rows;
    }
    return std::nullopt;
}

}  // namespace afd::ops
