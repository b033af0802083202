// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of int8 weights for AVX-512 VNNI. vpdpbusd multiplies unsigned by signed bytes, which is
// why the weights are stored with 128 added: Σ (w + 128)·x - 128·Σ x is the sum, and both are exact
// modulo 2^32. Included by ops/cpu/avx512/kernels_avx512_vnni.cc only.

#include <immintrin.h>

#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/weight_fetch.h"

namespace afd::ops::cpu {
namespace {

// Four depth elements of one panel.
constexpr size_t kQuadBytes = 4 * kPanelColumns;

inline __m512i broadcast_quad(const int8_t* x) {
    int32_t quad;
    std::memcpy(&quad, x, sizeof quad);
    return _mm512_set1_epi32(quad);
}

// The last `count` elements of a row, then zeros.
inline __m512i broadcast_quad_tail(const int8_t* x, size_t count) {
    int32_t quad = 0;
    std::memcpy(&quad, x, count);
    return _mm512_set1_epi32(quad);
}

int32_t sum_int8(const int8_t* x, size_t count) {
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sums = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + 64 <= count; i += 64) {
        sums = _mm512_dpbusd_epi32(sums, ones, _mm512_loadu_si512(x + i));
    }
    int32_t lanes[16];
    _mm512_storeu_si512(lanes, sums);
    int32_t sum = 0;
    for (const int32_t lane : lanes) sum += lane;
    for (; i < count; ++i) sum += x[i];
    return sum;
}

// Sums keep one element type from begin to end: GCC 12 holds a sum twice that changes its own.
using Sums = int32_t __attribute__((vector_size(64)));

inline Sums add_products(Sums sums, __m512i weights, __m512i x) {
    return (Sums)_mm512_dpbusd_epi32((__m512i)sums, weights, x);
}

template <size_t kRows, Fetch kFetch>
void int8_tile_of(const Int8TileArguments& a) {
    Sums low[kRows];
    Sums high[kRows];
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        const auto sum = static_cast<uint32_t>(a.row_sum[r]);
        low[r] = high[r] = (Sums)_mm512_set1_epi32(static_cast<int32_t>(0 - 128u * sum));
    });
    const size_t num_quads = a.depth / 4;
    if (a.depth % 4 != 0) {
        const std::byte* last = a.panel + num_quads * kQuadBytes;
        const int8_t* x = a.x + num_quads * 4;
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            const __m512i value = broadcast_quad_tail(x + r * a.x_stride, a.depth % 4);
            low[r] = add_products(low[r], _mm512_load_si512(last), value);
            high[r] = add_products(high[r], _mm512_load_si512(last + 64), value);
        });
    }
    auto next_weights = reinterpret_cast<uintptr_t>(a.fetch_next.from);
    auto next_rows = reinterpret_cast<uintptr_t>(a.next_x);
    const int8_t* x = a.x;
    const std::byte* weights = a.panel;
    for (size_t k = 0; k < num_quads; ++k, weights += kQuadBytes, x += 4) {
        // A line for every quad of depth is more than kAvx512TileRows rows have.
        if constexpr (kFetch == Fetch::kNext) fetch_to_second_level(next_rows);
        next_rows += kLineBytes;
        fetch_weights<kFetch>(weights, a.fetch_ahead.bytes, next_weights, a.fetch_next.step_bytes);
        const __m512i w_low = _mm512_load_si512(weights);
        const __m512i w_high = _mm512_load_si512(weights + 64);
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            const __m512i value = broadcast_quad(x + r * a.x_stride);
            low[r] = add_products(low[r], w_low, value);
            high[r] = add_products(high[r], w_high, value);
        });
    }
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        _mm512_storeu_si512(a.out + r * kPanelColumns, (__m512i)low[r]);
        _mm512_storeu_si512(a.out + r * kPanelColumns + 16, (__m512i)high[r]);
    });
}

void int8_tile(const Int8TileArguments& a) {
    with_rows(a.num_rows, [&]<size_t kRows>() {
        with_fetch(a, [&]<Fetch kFetch>() { int8_tile_of<kRows, kFetch>(a); });
    });
}

}  // namespace
}  // namespace afd::ops::cpu
