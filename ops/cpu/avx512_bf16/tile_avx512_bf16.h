// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of bf16 weights for AVX-512 BF16. Compiled into the kernel files of classes avx512-bf16 and
// amx only.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/weight_fetch.h"

namespace afd::ops::cpu {
namespace {

constexpr size_t kPairElements = 2 * kPanelColumns;  // One pair of depth elements of one panel.

inline __m512 dot_pairs(__m512 sum, __m512i weights, __m512i x) {
    return _mm512_dpbf16_ps(sum, (__m512bh)weights, (__m512bh)x);
}

inline __m512i broadcast_pair(const Bf16* x) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof pair);
    return _mm512_set1_epi32(pair);
}

inline __m512i broadcast_last(const Bf16* x) {
    return _mm512_set1_epi32(x->bits);
}

// kRows rows x one panel.
template <size_t kRows, Fetch kFetch>
void tile_of(const TileArguments& a, const uint16_t* panel, float* out) {
    __m512 low[kRows];
    __m512 high[kRows];
    const size_t out_stride = a.num_panels * kPanelColumns;
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        low[r] = a.goes_on ? _mm512_loadu_ps(out + r * out_stride) : _mm512_setzero_ps();
        high[r] = a.goes_on ? _mm512_loadu_ps(out + r * out_stride + 16) : _mm512_setzero_ps();
    });
    const size_t num_pairs = a.depth / 2;
    auto next_weights = reinterpret_cast<uintptr_t>(a.fetch_next.from);
    auto next_rows = reinterpret_cast<uintptr_t>(a.next_x);
    const Bf16* x = a.x;
    const uint16_t* weights = panel;
    const auto step = [&](auto&& broadcast_x) __attribute__((always_inline)) {
        // A line for every pair of depth is enough for kAvx512TileRows rows.
        if constexpr (kFetch == Fetch::kNext) fetch_to_second_level(next_rows);
        fetch_weights<kFetch>(weights, a.fetch_ahead.bytes, next_weights, a.fetch_next.step_bytes);
        const __m512i w_low = _mm512_load_si512(weights);
        const __m512i w_high = _mm512_load_si512(weights + kPanelColumns);
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            const __m512i value = broadcast_x(x + r * a.x_stride);
            low[r] = dot_pairs(low[r], w_low, value);
            high[r] = dot_pairs(high[r], w_high, value);
        });
    };
    for (size_t k = 0; k < num_pairs; ++k) {
        step(broadcast_pair);
        x += 2;
        weights += kPairElements;
        next_rows += kLineBytes;
    }
    if (a.depth % 2 != 0) step(broadcast_last);
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        _mm512_storeu_ps(out + r * out_stride, low[r]);
        _mm512_storeu_ps(out + r * out_stride + 16, high[r]);
    });
}

template <size_t kRows>
void tile_rows(const TileArguments& a) {
    for (size_t p = 0; p < a.num_panels; ++p) {
        const uint16_t* panel = a.panel + p * a.panel_elements;
        float* out = a.out + p * kPanelColumns;
        with_fetch<Fetch::kNearAlone>(
            a, [&]<Fetch kFetch>() { tile_of<kRows, kFetch>(a, panel, out); });
    }
}

[[maybe_unused]] void tile(const TileArguments& a) {
    with_rows(a.num_rows, [&]<size_t kRows>() { tile_rows<kRows>(a); });
}

}  // namespace
}  // namespace afd::ops::cpu
