// SPDX-License-Identifier: Apache-2.0
#pragma once

// QuantisedRows to bf16 (ops/cpu/quantised_values.h says what Lanes and Values are). Included by
// kernels_*.cc only.

#include <cstddef>
#include <cstdint>

#include "ops/cpu/line_fetches.h"
#include "ops/cpu/quantised_rows.h"
#include "ops/cpu/quantised_values.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/kv_dtype.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// A row's tile whose scale is ordinary. kCount: how many values it has; 0: `count`.
template <typename Lanes, typename Values, size_t kCount>
[[gnu::always_inline]] inline void expand_values(const std::byte* q,
                                                 float scale,
                                                 size_t count,
                                                 Bf16* x) {
    constexpr size_t kStep = 2 * Lanes::kWidth;
    const auto factor = Lanes::broadcast(scale * Values::template kFactor<Lanes>);
    const auto step = [&](size_t at) __attribute__((always_inline)) {
        typename Lanes::Floats a;
        typename Lanes::Floats b;
        Values::template load<Lanes>(q + at, a, b);
        Lanes::store_rounded(x + at, Lanes::multiply(a, factor), Lanes::multiply(b, factor));
    };
    if constexpr (kCount != 0) {
        unrolled<kCount / kStep>([&](size_t k) __attribute__((always_inline)) { step(k * kStep); });
    } else {
        size_t i = 0;
        for (; i + kStep <= count; i += kStep) step(i);
        if (i < count) Values::expand(q + i, scale, count - i, x + i);
    }
}

// The same tile of all rows.
template <typename Lanes, typename Values, size_t kCount>
void expand_tile(const QuantisedRows& rows, size_t tile, Bf16* x, LineFetches& next) {
    const size_t count = kCount != 0 ? kCount : kv_tile_values(rows.count, tile);
    const std::byte* q = rows.values + tile * kKvTile;
    x += tile * kKvTile;
    for (size_t row = 0; row < rows.num_rows; ++row) {
        next.next();
        const float scale = rows.scale(row, tile);
        if (is_ordinary<Lanes, Values>(scale)) {
            expand_values<Lanes, Values, kCount>(q, scale, count, x);
        } else {
            Values::expand(q, scale, count, x);
        }
        q += rows.row_bytes;
        x += rows.count;
    }
}

// Rows follow each other in x.
template <typename Lanes, typename Values>
void expand_rows(const QuantisedRows& rows, Bf16* x) {
    const size_t num_tiles = num_kv_tiles(rows.count);
    LineFetches next(
        CacheLevel::kFirst, rows.next.data(), rows.next.size(), rows.num_rows * num_tiles);
    for (size_t tile = 0; tile < num_tiles; ++tile) {
        switch (kv_tile_values(rows.count, tile)) {
            case kKvTile:
                expand_tile<Lanes, Values, kKvTile>(rows, tile, x, next);
                break;
            case kKvTile / 2:
                expand_tile<Lanes, Values, kKvTile / 2>(rows, tile, x, next);
                break;
            default:
                expand_tile<Lanes, Values, 0>(rows, tile, x, next);
        }
    }
}

// For processors without lanes.
template <typename Values>
void expand_rows_plain(const QuantisedRows& rows, Bf16* x) {
    for (size_t row = 0; row < rows.num_rows; ++row) {
        const std::byte* q = rows.values + row * rows.row_bytes;
        for (size_t tile = 0; tile < num_kv_tiles(rows.count); ++tile) {
            Values::expand(q, rows.scale(row, tile), kv_tile_values(rows.count, tile), x);
            q += kKvTile;
            x += kv_tile_values(rows.count, tile);
        }
    }
}

// x = (q / scale) →bf16, a scale for each element. REQUIRES: scales are positive numbers.
[[maybe_unused]] void expand_int8_channels_row(const int8_t* q,
                                               const float* scale,
                                               size_t count,
                                               Bf16* x) {
    for (size_t i = 0; i < count; ++i) x[i] = round_number(static_cast<float>(q[i]) / scale[i]);
}

}  // namespace
}  // namespace afd::ops::cpu
