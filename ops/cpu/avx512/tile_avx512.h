// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of bf16 weights by fp32 multiply-adds on 16 lanes. Included by
// ops/cpu/avx512/kernels_avx512.cc only.
//
// Whatever makes floats of bf16 takes the ports of the multiplier. So a register of weights is all
// 32 columns as they lie, of which a shift makes the even ones and a mask the odd ones, and sums
// stand that way until the tile ends; x becomes floats sixteen at a time, a piece of depth ahead,
// and its values are broadcast by loads alone. With values of x shifted and broadcast one by one a
// tile of twelve rows had 0.45 of the peak, so it has 0.8.

#include <immintrin.h>

#include <algorithm>

#include "ops/cpu/avx512/words_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/weight_fetch.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// Whole registers of depth that there is room for. The rows of floats are so far apart, as a
// constant, whatever part of it BlockSizes::widened leaves.
template <size_t kRows>
inline constexpr size_t kPieceDepth = BlockSizes::kWidenedMax / kRows / 16 * 16;

// Elements [0, depth) of kRows rows as floats, kPieceDepth<kRows> apart.
template <size_t kRows>
[[gnu::always_inline]] inline void expand_rows(const Bf16* x,
                                               size_t stride,
                                               size_t depth,
                                               float* floats) {
    for (size_t r = 0; r < kRows; ++r, x += stride, floats += kPieceDepth<kRows>) {
        for (size_t k = 0; k < depth; k += 16) {
            const size_t left = std::min<size_t>(depth - k, 16);
            const auto mask = static_cast<__mmask16>((1u << left) - 1);
            const __m256i half = _mm256_maskz_loadu_epi16(mask, x + k);
            _mm512_store_si512(floats + k, _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
        }
    }
}

// The sums of a row of a panel by even and odd columns, and back.
inline __m512i even_columns() {
    return _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
inline __m512i odd_columns() {
    return _mm512_add_epi32(even_columns(), _mm512_set1_epi32(1));
}
inline __m512i low_columns() {
    return _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline __m512i high_columns() {
    return _mm512_add_epi32(low_columns(), _mm512_set1_epi32(8));
}

// kRows rows x one panel. Of the next panel it fetches lines of pairs of depth.
template <size_t kRows, Fetch kFetch>
void tile_of(const TileArguments& a, const uint16_t* panel, float* out) {
    using Lanes = SixteenWords;
    alignas(64) float floats[BlockSizes::kWidenedMax];
    const size_t piece_depth =
        std::clamp<size_t>(block_sizes().widened / kRows / 16 * 16, 16, kPieceDepth<kRows>);
    __m512 even[kRows];
    __m512 odd[kRows];
    const size_t out_stride = a.num_panels * kPanelColumns;
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        even[r] = odd[r] = _mm512_setzero_ps();
        if (!a.goes_on) return;
        const __m512 low = _mm512_loadu_ps(out + r * out_stride);
        const __m512 high = _mm512_loadu_ps(out + r * out_stride + 16);
        even[r] = _mm512_permutex2var_ps(low, even_columns(), high);
        odd[r] = _mm512_permutex2var_ps(low, odd_columns(), high);
    });
    auto next_weights = reinterpret_cast<uintptr_t>(a.fetch_next.from);
    const size_t next_step = (a.fetch_next.step_bytes + 1) / 2;
    const uint16_t* weights = panel;
    for (size_t first = 0; first < a.depth; first += piece_depth) {
        const size_t count = std::min(piece_depth, a.depth - first);
        expand_rows<kRows>(a.x + first, a.x_stride, count, floats);
        const float* x = floats;
        for (const float* end = x + count; x < end; ++x, weights += kPanelColumns) {
            // One line a step, so that fetching keeps pace with multiplying instead of running
            // ahead of it.
            if constexpr (kFetch == Fetch::kNext) {
                fetch_to_second_level(next_weights);
                next_weights += next_step;
            } else {
                fetch_own_line<kFetch>(weights, a.fetch_ahead.bytes);
            }
            const __m512i words = _mm512_loadu_si512(weights);
            const __m512 w_even = Lanes::low_half(words);
            const __m512 w_odd = Lanes::high_half(words);
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                const __m512 value = _mm512_set1_ps(x[r * kPieceDepth<kRows>]);
                even[r] = _mm512_fmadd_ps(value, w_even, even[r]);
                odd[r] = _mm512_fmadd_ps(value, w_odd, odd[r]);
            });
        }
    }
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        float* to = out + r * out_stride;
        _mm512_storeu_ps(to, _mm512_permutex2var_ps(even[r], low_columns(), odd[r]));
        _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps(even[r], high_columns(), odd[r]));
    });
}

void tile(const TileArguments& a) {
    with_rows(a.num_rows, [&]<size_t kRows>() {
        for (size_t p = 0; p < a.num_panels; ++p) {
            const uint16_t* panel = a.panel + p * a.panel_elements;
            float* out = a.out + p * kPanelColumns;
            with_fetch(a, [&]<Fetch kFetch>() { tile_of<kRows, kFetch>(a, panel, out); });
        }
    });
}

}  // namespace
}  // namespace afd::ops::cpu
