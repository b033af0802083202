// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of bf16 weights for AVX-512 BF16. Included by ops/cpu/kernels_avx512.cc only.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"

namespace afd::ops::cpu {
namespace {

constexpr size_t kColumns = 32;
constexpr size_t kPairElements = 2 * kColumns;  // One pair of depth elements of one panel.
constexpr size_t kLineBytes = 64;

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

// The cache that prefetched weights go to, as __builtin_prefetch counts. What lies far ahead goes
// to the second level: the first one holds what is in use.
enum class Nearness { kSecondLevel = 2, kFirstLevel = 3 };

template <Nearness kNearness>
inline void prefetch_ahead(const void* at, size_t ahead) {
    __builtin_prefetch(static_cast<const char*>(at) + ahead, 0, static_cast<int>(kNearness));
}

// A line of the rows that pass next for every pair of depth: enough for kTileRows rows.
template <Nearness kNearness>
inline void prefetch_next(uintptr_t line) {
    if constexpr (kNearness == Nearness::kSecondLevel)
        __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);
}

// kRows rows x one panel.
template <size_t kRows, Nearness kNearness>
void tile_of(const TileArguments& a, const uint16_t* panel, float* out) {
    __m512 low[kRows];
    __m512 high[kRows];
    const size_t out_stride = a.num_panels * kColumns;
    for (size_t r = 0; r < kRows; ++r) {
        low[r] = a.goes_on ? _mm512_loadu_ps(out + r * out_stride) : _mm512_setzero_ps();
        high[r] = a.goes_on ? _mm512_loadu_ps(out + r * out_stride + 16) : _mm512_setzero_ps();
    }
    const size_t num_pairs = a.depth / 2;
    const size_t ahead = a.prefetch_ahead;
    const Bf16* x = a.x;
    const uint16_t* weights = panel;
    auto next = reinterpret_cast<uintptr_t>(a.next_x);
    const auto step = [&](auto&& broadcast_x) __attribute__((always_inline)) {
        prefetch_next<kNearness>(next);
        prefetch_ahead<kNearness>(weights, ahead);
        prefetch_ahead<kNearness>(weights + kColumns, ahead);
        const __m512i w_low = _mm512_load_si512(weights);
        const __m512i w_high = _mm512_load_si512(weights + kColumns);
        for (size_t r = 0; r < kRows; ++r) {
            const __m512i value = broadcast_x(x + r * a.x_stride);
            low[r] = dot_pairs(low[r], w_low, value);
            high[r] = dot_pairs(high[r], w_high, value);
        }
    };
    for (size_t k = 0; k < num_pairs; ++k, x += 2, weights += kPairElements, next += kLineBytes) {
        step(broadcast_pair);
    }
    if (a.depth % 2 != 0) step(broadcast_last);
    for (size_t r = 0; r < kRows; ++r) {
        _mm512_storeu_ps(out + r * out_stride, low[r]);
        _mm512_storeu_ps(out + r * out_stride + 16, high[r]);
    }
}

template <size_t kRows>
void tile_rows(const TileArguments& a) {
    for (size_t p = 0; p < a.num_panels; ++p) {
        const uint16_t* panel = a.panel + p * a.panel_elements;
        if (a.next_x == nullptr) {
            tile_of<kRows, Nearness::kFirstLevel>(a, panel, a.out + p * kColumns);
        } else {
            tile_of<kRows, Nearness::kSecondLevel>(a, panel, a.out + p * kColumns);
        }
    }
}

void tile(const TileArguments& a) {
    with_rows(a.num_rows, [&]<size_t kRows>() { tile_rows<kRows>(a); });
}

}  // namespace
}  // namespace afd::ops::cpu
