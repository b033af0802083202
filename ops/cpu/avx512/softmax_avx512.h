// SPDX-License-Identifier: Apache-2.0
#pragma once

// The step of ops/cpu/softmax_row.h on 16 lanes, with its bits, for ops/cpu/attend_floats.h: what
// is one number of a head (its maximum, its sum) is computed for sixteen heads at once. Included by
// ops/cpu/avx512/attention_avx512.h only.

#include <immintrin.h>

#include <algorithm>

#include "ops/cpu/attend_floats.h"
#include "ops/cpu/avx512/math_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"

namespace afd::ops::cpu {
namespace {

constexpr size_t kFoldedSums = 16;

// The sums of the lanes of sixteen registers, by halves; that of register i in lane
// i % 4 · 4 + i / 4.
[[gnu::always_inline]] inline __m512 sums_of_lanes(const __m512 (&lanes)[kFoldedSums]) {
    __m512 eights[8];
    unrolled<8>([&](size_t i) __attribute__((always_inline)) {
        const __m512 a = lanes[2 * i];
        const __m512 b = lanes[2 * i + 1];
        eights[i] =
            _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    });
    __m512d fours[4];
    unrolled<4>([&](size_t i) __attribute__((always_inline)) {
        const __m512 a = eights[2 * i];
        const __m512 b = eights[2 * i + 1];
        fours[i] = _mm512_castps_pd(
            _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd)));
    });
    __m512 twos[2];
    unrolled<2>([&](size_t i) __attribute__((always_inline)) {
        const __m512d a = fours[2 * i];
        const __m512d b = fours[2 * i + 1];
        twos[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                                _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    });
    return _mm512_add_ps(_mm512_shuffle_ps(twos[0], twos[1], 0x88),
                         _mm512_shuffle_ps(twos[0], twos[1], 0xdd));
}

inline void softmax_avx512(const HeadsState& s,
                           const AttendBlock& b,
                           ScoreRows& scores,
                           ScoreRows& p) {
    constexpr size_t kRegisters = kAttentionBlock / 16;
    static_assert(kHeadsMax == kFoldedSums);
    const auto between = [](size_t first, size_t last) {
        return static_cast<__mmask16>((1u << last) - (1u << first));
    };
    const size_t last = b.end_of_heads(s);
    __mmask16 is_valid[kRegisters];
    for (size_t i = 0; i < kRegisters; ++i) {
        const size_t before = std::min(16 * i, b.num_positions);
        is_valid[i] = between(0, std::min<size_t>(b.num_positions - before, 16));
    }
    const __m512 maximum = _mm512_loadu_ps(s.maximum);
    alignas(64) float tops[kHeadsMax];
    _mm512_store_ps(tops, maximum);
    for (size_t head = b.first_head; head < last; ++head) {
        __m512 top = _mm512_set1_ps(tops[head]);
        unrolled<kRegisters>([&](size_t i) __attribute__((always_inline)) {
            // A NaN score counts for no maximum.
            const __m512 row = _mm512_loadu_ps(scores.row(head) + 16 * i);
            top = _mm512_mask_max_ps(top, is_valid[i], row, top);
        });
        tops[head] = _mm512_reduce_max_ps(top);
    }
    __m512 lanes[kFoldedSums] = {};
    for (size_t head = b.first_head; head < last; ++head) {
        const __m512 top = _mm512_set1_ps(tops[head]);
        __m512 x[kRegisters];
        unrolled<kRegisters>([&](size_t i) __attribute__((always_inline)) {
            x[i] = _mm512_sub_ps(_mm512_loadu_ps(scores.row(head) + 16 * i), top);
        });
        exp_each(x);
        __m512 sum = _mm512_setzero_ps();
        unrolled<kRegisters>([&](size_t i) __attribute__((always_inline)) {
            x[i] = _mm512_maskz_mov_ps(is_valid[i], x[i]);
            sum = _mm512_add_ps(sum, x[i]);
            const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
            const __m512i weight = _mm512_and_si512(round_high(x[i]), high);
            _mm512_storeu_ps(p.row(head) + 16 * i, _mm512_castsi512_ps(weight));
        });
        lanes[head % 4 * 4 + head / 4] = sum;
    }
    const __m512 top = _mm512_load_ps(tops);
    const __m512 alpha = exp_16(_mm512_sub_ps(maximum, top));
    const __m512 before = _mm512_mul_ps(_mm512_loadu_ps(s.sum), alpha);
    const __mmask16 heads = between(b.first_head, last);
    _mm512_mask_storeu_ps(s.alpha, heads, alpha);
    _mm512_mask_storeu_ps(s.sum, heads, _mm512_add_ps(before, sums_of_lanes(lanes)));
    _mm512_mask_storeu_ps(s.maximum, heads, top);
}

}  // namespace
}  // namespace afd::ops::cpu
