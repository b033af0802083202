// SPDX-License-Identifier: Apache-2.0
#pragma once

// ops/tensor/math.h and ops/tensor/bf16.h on 16 lanes, with the same bits. Compiled into the kernel
// files of classes avx512, avx512-bf16 and amx only.

#include <immintrin.h>

#include <initializer_list>

#include "ops/tensor/math.h"

namespace afd::ops::cpu {
namespace {

// exp() of ops/tensor/math.h, operation by operation, of several registers: what one waits for, the
// next one fills.
template <size_t kCount>
[[gnu::always_inline]] inline void exp_each(__m512 (&x)[kCount]) {
    const auto constant = [](float value) { return _mm512_set1_ps(value); };
    __m512 n[kCount];
    __m512 p[kCount];
    for (__m512& value : x) {
        value = _mm512_max_ps(constant(-104.0f), value);
        value = _mm512_min_ps(constant(89.0f), value);
    }
    for (size_t i = 0; i < kCount; ++i) {
        n[i] = _mm512_add_ps(_mm512_mul_ps(x[i], constant(1.44269504088896341f)),
                             constant(kIntegerRounder));
        n[i] = _mm512_sub_ps(n[i], constant(kIntegerRounder));
    }
    for (const float part : {0.693359375f, -2.12194440054690583e-4f}) {
        for (size_t i = 0; i < kCount; ++i) {
            x[i] = _mm512_sub_ps(x[i], _mm512_mul_ps(n[i], constant(part)));
        }
    }
    for (__m512& value : p) value = constant(1.0f / 5040.0f);
    for (const float term : {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f}) {
        for (size_t i = 0; i < kCount; ++i) {
            p[i] = _mm512_add_ps(_mm512_mul_ps(p[i], x[i]), constant(term));
        }
    }
    for (size_t i = 0; i < kCount; ++i) {
        p[i] = _mm512_mul_ps(_mm512_mul_ps(x[i], x[i]), p[i]);
        p[i] = _mm512_add_ps(constant(1.0f), _mm512_add_ps(x[i], p[i]));
        // There two factors, of which only the second one can round: p · 2^n.
        x[i] = _mm512_scalef_ps(p[i], n[i]);
    }
}

inline __m512 exp_16(__m512 x) {
    __m512 values[] = {x};
    exp_each(values);
    return values[0];
}

// from_float() of ops/tensor/bf16.h of what is no NaN, in the upper half of each lane; the lower
// half is anything.
inline __m512i round_number_high(__m512 value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i lowest = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), lowest);
}

// The same of all values.
inline __m512i round_high(__m512 value) {
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(
        round_number_high(value), is_nan, _mm512_castps_si512(value), _mm512_set1_epi32(0x400000));
}

inline __m256i round_16(__m512 value) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_high(value), 16));
}

}  // namespace
}  // namespace afd::ops::cpu
