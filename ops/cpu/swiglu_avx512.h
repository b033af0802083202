// SPDX-License-Identifier: Apache-2.0
#pragma once

// swiglu_row on 16 lanes: a compiler that vectorises the portable one takes a mask for every
// choice. Included by ops/cpu/kernels_avx512*.cc only.

#include <immintrin.h>

#include <cstddef>

#include "ops/cpu/math_avx512.h"
#include "ops/cpu/row_kernels.h"

namespace afd::ops::cpu {
namespace {

inline __m512 round_bf16(__m512 x) {
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_castsi512_ps(_mm512_and_si512(round_high(x), high));
}

// silu() of ops/math.h, operation by operation.
inline __m512 silu_16(__m512 x) {
    const __mmask16 is_negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 minus = _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0x80000000u))));
    const __m512 e = exp_16(_mm512_mask_mov_ps(minus, is_negative, x));
    const __m512 numerator = _mm512_mask_mov_ps(one, is_negative, e);
    return _mm512_mul_ps(x, _mm512_div_ps(numerator, _mm512_add_ps(one, e)));
}

void swiglu_row_avx512(const float* gate, const float* up, size_t count, Bf16* h) {
    if (count != kLanes) return swiglu_row(gate, up, count, h);
    const __m512 rounded_gate = round_bf16(_mm512_loadu_ps(gate));
    const __m512 rounded_up = round_bf16(_mm512_loadu_ps(up));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(h),
                        round_16(_mm512_mul_ps(silu_16(rounded_gate), rounded_up)));
}

}  // namespace
}  // namespace afd::ops::cpu
