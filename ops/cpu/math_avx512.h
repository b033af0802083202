// SPDX-License-Identifier: Apache-2.0
#pragma once

// ops/math.h and ops/bf16.h on 16 lanes, with the same bits. Included by ops/cpu/kernels_avx512*.cc
// only.

#include <immintrin.h>

namespace afd::ops::cpu {
namespace {

// exp() of ops/math.h, operation by operation.
inline __m512 exp_16(__m512 x) {
    const auto constant = [](float value) { return _mm512_set1_ps(value); };
    __m512 clamped = _mm512_max_ps(constant(-104.0f), x);
    clamped = _mm512_min_ps(constant(89.0f), clamped);
    const __m512 shifted = _mm512_add_ps(_mm512_mul_ps(clamped, constant(1.44269504088896341f)),
                                         constant(12582912.0f));
    const __m512 n = _mm512_sub_ps(shifted, constant(12582912.0f));
    __m512 r = _mm512_sub_ps(clamped, _mm512_mul_ps(n, constant(0.693359375f)));
    r = _mm512_sub_ps(r, _mm512_mul_ps(n, constant(-2.12194440054690583e-4f)));
    __m512 p = constant(1.0f / 5040.0f);
    for (const float term : {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f}) {
        p = _mm512_add_ps(_mm512_mul_ps(p, r), constant(term));
    }
    p = _mm512_add_ps(constant(1.0f), _mm512_add_ps(r, _mm512_mul_ps(_mm512_mul_ps(r, r), p)));
    const __m512i k = _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(0x4b400000));
    const __m512i half = _mm512_srai_epi32(k, 1);
    const __m512i bias = _mm512_set1_epi32(127);
    const __m512i scale_a = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
    const __m512i scale_b =
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(k, half), bias), 23);
    return _mm512_mul_ps(_mm512_mul_ps(p, _mm512_castsi512_ps(scale_a)),
                         _mm512_castsi512_ps(scale_b));
}

// from_float() of ops/bf16.h, in the upper half of each lane; the lower half is anything.
inline __m512i round_high(__m512 value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i lowest = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), lowest);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
}

inline __m256i round_16(__m512 value) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_high(value), 16));
}

}  // namespace
}  // namespace afd::ops::cpu
