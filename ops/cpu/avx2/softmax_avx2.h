// SPDX-License-Identifier: Apache-2.0
#pragma once

// The step of ops/cpu/softmax_row.h on 8 lanes, with its bits, for ops/cpu/attend_floats.h: what is
// one number of a head (its maximum, its sum) is computed for eight heads at once. Included by
// ops/cpu/avx2/attention_avx2.h only.

#include <immintrin.h>

#include <algorithm>

#include "ops/cpu/attend_floats.h"
#include "ops/cpu/avx2/words_avx2.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/softmax_row.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/math.h"

namespace afd::ops::cpu {
namespace {

// What a reduction adds or takes the larger one of.
struct Added {
    static __m256 of(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
};
struct Larger {
    static __m256 of(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
};

// The eight lanes of eight registers, by halves; that of lanes[kLanePlaces[i]] in lane i. Blends,
// since shuffles take the ports of the multiplier.
constexpr size_t kLanePlaces[] = {0, 4, 2, 6, 1, 5, 3, 7};

template <typename Way>
[[gnu::always_inline]] inline __m256 fold(const __m256 (&lanes)[8]) {
    __m256 fours[4];
    unrolled<4>([&](size_t i) __attribute__((always_inline)) {
        const __m256 a = lanes[2 * i];
        const __m256 b = lanes[2 * i + 1];
        fours[i] = Way::of(_mm256_blend_ps(a, b, 0xf0), _mm256_permute2f128_ps(a, b, 0x21));
    });
    __m256 twos[2];
    unrolled<2>([&](size_t i) __attribute__((always_inline)) {
        const __m256 a = fours[2 * i];
        const __m256 b = fours[2 * i + 1];
        twos[i] = Way::of(_mm256_blend_ps(a, b, 0xcc), _mm256_shuffle_ps(a, b, 0x4e));
    });
    const __m256 crossed = _mm256_blend_ps(twos[1], twos[0], 0xaa);
    return Way::of(_mm256_blend_ps(twos[0], twos[1], 0xaa), _mm256_permute_ps(crossed, 0xb1));
}

// exp() of ops/tensor/math.h up to its last step: what 2^n multiplies. shifted: n in its low bits.
template <size_t kCount>
[[gnu::always_inline]] inline void exp_fraction(const __m256 (&x)[kCount],
                                                __m256 (&p)[kCount],
                                                __m256i (&shifted)[kCount]) {
    const auto constant = [](float value) { return _mm256_set1_ps(value); };
    __m256 r[kCount];
    unrolled<kCount>([&](size_t i) __attribute__((always_inline)) {
        const __m256 sum = _mm256_add_ps(_mm256_mul_ps(x[i], constant(1.44269504088896341f)),
                                         constant(kIntegerRounder));
        shifted[i] = _mm256_castps_si256(sum);
        const __m256 n = _mm256_sub_ps(sum, constant(kIntegerRounder));
        r[i] = _mm256_sub_ps(x[i], _mm256_mul_ps(n, constant(0.693359375f)));
        r[i] = _mm256_sub_ps(r[i], _mm256_mul_ps(n, constant(-2.12194440054690583e-4f)));
        p[i] = constant(1.0f / 5040.0f);
    });
    for (const float term : {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f}) {
        unrolled<kCount>([&](size_t i) __attribute__((always_inline)) {
            p[i] = _mm256_add_ps(_mm256_mul_ps(p[i], r[i]), constant(term));
        });
    }
    unrolled<kCount>([&](size_t i) __attribute__((always_inline)) {
        p[i] = _mm256_mul_ps(_mm256_mul_ps(r[i], r[i]), p[i]);
        p[i] = _mm256_add_ps(constant(1.0f), _mm256_add_ps(r[i], p[i]));
    });
}

// exp() of ops/tensor/math.h.
inline __m256 exp_8(__m256 value) {
    const __m256 x[] = {
        _mm256_min_ps(_mm256_set1_ps(89.0f), _mm256_max_ps(_mm256_set1_ps(-104.0f), value))};
    __m256 p[1];
    __m256i shifted[1];
    exp_fraction(x, p, shifted);
    const __m256i k = _mm256_sub_epi32(shifted[0], _mm256_set1_epi32(kIntegerRounderBits));
    const __m256i half = _mm256_srai_epi32(k, 1);
    const auto power = [](__m256i exponent) {
        const __m256i biased = _mm256_add_epi32(exponent, _mm256_set1_epi32(127));
        return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
    };
    return _mm256_mul_ps(_mm256_mul_ps(p[0], power(half)), power(_mm256_sub_epi32(k, half)));
}

// Scores that are at most so far below the largest one have weights that are normal floats, and
// 2^n is one factor.
constexpr float kNormalWeights = -87.0f;

// The weights of a head's positions to p [kAttentionBlock]. Lane i of `lanes` is the sum of partial
// sums i and i + 8 of ops/tensor/lanes.h. False, and p anything, where a weight is no normal float.
[[gnu::always_inline]] inline bool weights_of(
    const float* scores, size_t num_positions, __m256 top, float* p, __m256& lanes) {
    constexpr size_t kAtOnce = 4;
    __m256 sums[2] = {EightWords::zero(), EightWords::zero()};
    __m256 is_other = EightWords::zero();
    for (size_t first = 0; first < kAttentionBlock; first += kAtOnce * EightWords::kWidth) {
        __m256 x[kAtOnce];
        unrolled<kAtOnce>([&](size_t i) __attribute__((always_inline)) {
            x[i] = _mm256_sub_ps(EightWords::load(scores + first + i * EightWords::kWidth), top);
            const __m256 is_low = _mm256_cmp_ps(x[i], _mm256_set1_ps(kNormalWeights), _CMP_NGE_UQ);
            is_other = _mm256_or_ps(is_other, is_low);
        });
        __m256 weights[kAtOnce];
        __m256i shifted[kAtOnce];
        exp_fraction(x, weights, shifted);
        unrolled<kAtOnce>([&](size_t i) __attribute__((always_inline)) {
            const __m256i power = _mm256_slli_epi32(shifted[i], 23);
            weights[i] = EightWords::floats(_mm256_add_epi32(EightWords::bits(weights[i]), power));
        });
        if (num_positions < kAttentionBlock) {
            unrolled<kAtOnce>([&](size_t i) __attribute__((always_inline)) {
                const __m256i position = _mm256_add_epi32(
                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                    _mm256_set1_epi32(static_cast<int>(first + i * EightWords::kWidth)));
                const __m256i is_valid = _mm256_cmpgt_epi32(
                    _mm256_set1_epi32(static_cast<int>(num_positions)), position);
                weights[i] = _mm256_and_ps(weights[i], EightWords::floats(is_valid));
            });
        }
        unrolled<kAtOnce>([&](size_t i) __attribute__((always_inline)) {
            sums[i % 2] = _mm256_add_ps(sums[i % 2], weights[i]);
            const __m256i rounded = EightWords::round_number_high(weights[i]);
            EightWords::store(p + first + i * EightWords::kWidth, EightWords::high_half(rounded));
        });
    }
    lanes = _mm256_add_ps(sums[0], sums[1]);
    return _mm256_movemask_ps(is_other) == 0;
}

[[gnu::always_inline]] inline __m256 largest_of(const float* scores, __m256 top) {
    __m256 tops[2] = {top, top};
    unrolled<kAttentionBlock / EightWords::kWidth>([&](size_t i) __attribute__((always_inline)) {
        // A NaN score counts for no maximum.
        const __m256 eight = EightWords::load(scores + i * EightWords::kWidth);
        tops[i % 2] = _mm256_max_ps(eight, tops[i % 2]);
    });
    return _mm256_max_ps(tops[0], tops[1]);
}

// Some heads of a block, eight at most.
inline void softmax_eight(const HeadsState& s,
                          const AttendBlock& b,
                          size_t first,
                          size_t count,
                          ScoreRows& scores,
                          ScoreRows& p) {
    alignas(32) float maximum[8] = {};
    alignas(32) float sum[8] = {};
    alignas(32) float alpha[8];
    alignas(32) float top[8];
    std::copy_n(s.maximum + first, count, maximum);
    std::copy_n(s.sum + first, count, sum);
    __m256 lanes[8] = {};
    for (size_t h = 0; h < count; ++h) {
        float* const row = scores.row(first + h);
        // A copy of a valid score neither raises the maximum nor, where the weights of valid ones
        // are normal floats, makes weights_of() give up.
        for (size_t i = b.num_positions; i < kAttentionBlock; ++i) row[i] = row[0];
        lanes[kLanePlaces[h]] = largest_of(row, _mm256_set1_ps(maximum[h]));
    }
    const __m256 tops = fold<Larger>(lanes);
    const __m256 alphas = exp_8(_mm256_sub_ps(EightWords::load(maximum), tops));
    EightWords::store(top, tops);
    EightWords::store(alpha, alphas);
    bool is_normal[8] = {};
    for (size_t h = 0; h < count; ++h) {
        is_normal[h] = weights_of(scores.row(first + h),
                                  b.num_positions,
                                  _mm256_set1_ps(top[h]),
                                  p.row(first + h),
                                  lanes[kLanePlaces[h]]);
    }
    const __m256 sums = _mm256_mul_ps(EightWords::load(sum), alphas);
    EightWords::store(sum, _mm256_add_ps(sums, fold<Added>(lanes)));
    for (size_t h = 0; h < count; ++h) {
        const size_t head = first + h;
        if (is_normal[h]) {
            s.maximum[head] = top[h];
            s.sum[head] = sum[h];
            s.alpha[head] = alpha[h];
        } else {
            softmax_one_row(s, b, head, scores, p);
        }
    }
}

inline void softmax_avx2(const HeadsState& s,
                         const AttendBlock& b,
                         ScoreRows& scores,
                         ScoreRows& p) {
    const size_t last = b.end_of_heads(s);
    for (size_t head = b.first_head; head < last; head += 8) {
        softmax_eight(s, b, head, std::min<size_t>(last - head, 8), scores, p);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
