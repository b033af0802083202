// SPDX-License-Identifier: Apache-2.0
#pragma once

// swiglu_row and the steps of a tile on 16 lanes: a compiler that vectorises the portable ones
// takes a mask for every choice. Included by kernels_avx512*.cc only.

#include <immintrin.h>

#include <cstddef>

#include "ops/cpu/avx512/math_avx512.h"
#include "ops/cpu/row_kernels.h"

namespace afd::ops::cpu {
namespace {

inline __m512 round_bf16(__m512 x) {
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_castsi512_ps(_mm512_and_si512(round_high(x), high));
}

// silu() of ops/tensor/math.h, operation by operation.
template <size_t kCount>
[[gnu::always_inline]] inline void silu_each(__m512 (&x)[kCount]) {
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000u));
    __mmask16 is_negative[kCount];
    __m512 e[kCount];
    for (size_t i = 0; i < kCount; ++i) {
        is_negative[i] = _mm512_cmp_ps_mask(x[i], _mm512_setzero_ps(), _CMP_LT_OQ);
        const __m512i minus = _mm512_xor_si512(_mm512_castps_si512(x[i]), sign);
        e[i] = _mm512_mask_mov_ps(_mm512_castsi512_ps(minus), is_negative[i], x[i]);
    }
    exp_each(e);
    for (size_t i = 0; i < kCount; ++i) {
        const __m512 numerator = _mm512_mask_mov_ps(one, is_negative[i], e[i]);
        x[i] = _mm512_mul_ps(x[i], _mm512_div_ps(numerator, _mm512_add_ps(one, e[i])));
    }
}

// kCount rows of swiglu_tile.
template <size_t kCount>
[[gnu::always_inline]] inline void swiglu_rows(const float* sums, Bf16* const* h) {
    __m512 gate[kCount];
    for (size_t i = 0; i < kCount; ++i)
        gate[i] = round_bf16(_mm512_loadu_ps(sums + i * kPanelColumns));
    silu_each(gate);
    for (size_t i = 0; i < kCount; ++i) {
        const __m512 up = round_bf16(_mm512_loadu_ps(sums + i * kPanelColumns + kLanes));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(h[i]), round_16(_mm512_mul_ps(gate[i], up)));
    }
}

void swiglu_row_avx512(const float* gate, const float* up, size_t count, Bf16* h) {
    if (count != kLanes) return swiglu_row(gate, up, count, h);
    __m512 value[] = {round_bf16(_mm512_loadu_ps(gate))};
    silu_each(value);
    const __m512 rounded_up = round_bf16(_mm512_loadu_ps(up));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(h),
                        round_16(_mm512_mul_ps(value[0], rounded_up)));
}

// Rows are taken by fours, since each step of one row waits for the step before.
void swiglu_tile_avx512(const float* sums, size_t count, Bf16* const* h) {
    constexpr size_t kRows = 4;
    size_t r = 0;
    for (; r + kRows <= count; r += kRows) swiglu_rows<kRows>(sums + r * kPanelColumns, h + r);
    for (; r < count; ++r) swiglu_rows<1>(sums + r * kPanelColumns, h + r);
}

void round_tile_avx512(const float* sums, size_t count, Bf16* const* y) {
    for (size_t r = 0; r < count; ++r, sums += kPanelColumns) {
        for (size_t i = 0; i < kPanelColumns; i += kLanes) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(y[r] + i),
                                round_16(_mm512_loadu_ps(sums + i)));
        }
    }
}

}  // namespace
}  // namespace afd::ops::cpu
