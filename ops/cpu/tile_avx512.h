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

// Where prefetched weights go. What lies far ahead goes to the second-level cache: the first one
// holds what is in use. From there they are fetched again, just ahead of their use, where every
// load counts.
enum class Fetch { kNear, kFar, kFarThenNear };

// The last step of kFarThenNear, in bytes.
constexpr size_t kFetchNear = 1024;

template <Fetch kFetch>
inline void fetch_line(const void* at, size_t ahead) {
    const char* line = static_cast<const char*>(at);
    __builtin_prefetch(line + ahead, 0, kFetch == Fetch::kNear ? 3 : 2);
    if constexpr (kFetch == Fetch::kFarThenNear) __builtin_prefetch(line + kFetchNear, 0, 3);
}

// Calls body.template operator()<fetch>() with what `ahead` asks for.
template <typename Body>
[[gnu::always_inline]] inline void with_fetch(size_t ahead, const Body& body) {
    if (ahead == kPrefetchFar) return body.template operator()<Fetch::kFarThenNear>();
    if (ahead > kPrefetchNear) return body.template operator()<Fetch::kFar>();
    return body.template operator()<Fetch::kNear>();
}

// kRows rows x one panel. kFetchesRows: a line of the rows that pass next for every pair of depth,
// which is enough for kTileRows rows.
template <size_t kRows, Fetch kFetch, bool kFetchesRows>
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
        if constexpr (kFetchesRows) {
            __builtin_prefetch(reinterpret_cast<const void*>(next), 0, 2);
        }
        fetch_line<kFetch>(weights, ahead);
        fetch_line<kFetch>(weights + kColumns, ahead);
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
        float* out = a.out + p * kColumns;
        if (a.next_x != nullptr) {
            tile_of<kRows, Fetch::kFar, true>(a, panel, out);
        } else {
            with_fetch(a.prefetch_ahead,
                       [&]<Fetch kFetch>() { tile_of<kRows, kFetch, false>(a, panel, out); });
        }
    }
}

void tile(const TileArguments& a) {
    with_rows(a.num_rows, [&]<size_t kRows>() { tile_rows<kRows>(a); });
}

}  // namespace
}  // namespace afd::ops::cpu
