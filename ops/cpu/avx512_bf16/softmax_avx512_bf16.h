// SPDX-License-Identifier: Apache-2.0
#pragma once

// One step of the online softmax of 16 heads, a lane each: scores are [position][kHeadLanes].
// Included by ops/cpu/avx512_bf16/kernels_avx512_bf16.cc and kernels_amx.cc only.

#include <immintrin.h>

#include "ops/cpu/avx512/math_avx512.h"
#include "ops/cpu/avx512_bf16/head_lanes_avx512_bf16.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// The step of ops/cpu/softmax_row.h for 16 heads, a lane each, with its bits. p is [pair of
// positions][kHeadLanes][2]; a pair's second half beyond the last position is 0.
// Sums of the block's heads alone go on; the others' scores and p are scratch.
void softmax(const HeadsState& s, const AttendBlock& b) {
    const size_t num_positions = b.num_positions;
    const __m512 maximum = _mm512_load_ps(s.maximum);
    __m512 tops[4] = {maximum, maximum, maximum, maximum};
    for (size_t i = 0; i < num_positions; ++i) {
        // A NaN score counts for no maximum; its p is NaN.
        tops[i % 4] = _mm512_max_ps(_mm512_load_ps(s.scores + i * kHeadLanes), tops[i % 4]);
    }
    const __m512 top =
        _mm512_max_ps(_mm512_max_ps(tops[0], tops[1]), _mm512_max_ps(tops[2], tops[3]));
    // Lane i of the first half beside lane i of the second.
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i interleave = _mm512_or_si512(
        lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(16)), 16));
    __m512 sums[16];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    for (size_t position = 0; position < num_positions; position += 4) {
        __m512 p[4];
        for (size_t i = 0; i < 4; ++i) {
            p[i] = _mm512_sub_ps(_mm512_load_ps(s.scores + (position + i) * kHeadLanes), top);
        }
        exp_each(p);
        for (size_t i = num_positions - position; i < 4; ++i) p[i] = _mm512_setzero_ps();
        for (size_t i = 0; i < 4; ++i) {
            sums[position % 16 + i] = _mm512_add_ps(sums[position % 16 + i], p[i]);
        }
        for (size_t i = 0; i < 4; i += 2) {
            // Rounds to nearest even like round_high(), but a denormal to zero, as which
            // vdpbf16ps takes it anyway.
            const auto both = (__m512i)_mm512_cvtne2ps_pbh(p[i + 1], p[i]);
            _mm512_store_si512(s.p + (position + i) * kHeadLanes,
                               _mm512_permutexvar_epi16(interleave, both));
        }
    }
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) sums[i] = _mm512_add_ps(sums[i], sums[i + half]);
    }
    const __m512 alpha = exp_16(_mm512_sub_ps(maximum, top));
    const __m512 sum = _mm512_mul_ps(_mm512_load_ps(s.sum), alpha);
    _mm512_store_ps(s.alpha, alpha);
    const auto heads = static_cast<__mmask16>((1u << b.end_of_heads(s)) - (1u << b.first_head));
    _mm512_mask_store_ps(s.sum, heads, _mm512_add_ps(sum, sums[0]));
    _mm512_mask_store_ps(s.maximum, heads, top);
}

}  // namespace
}  // namespace afd::ops::cpu
