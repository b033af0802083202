// SPDX-License-Identifier: Apache-2.0
#pragma once

// One step of the online softmax of 16 heads, a lane each: scores are [position][kHeadLanes].
// Included by ops/cpu/avx512_bf16/kernels_avx512_bf16.cc and kernels_amx.cc only.

#include <immintrin.h>

#include "ops/cpu/avx512/math_avx512.h"
#include "ops/cpu/avx512_bf16/head_lanes_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"

namespace afd::ops::cpu {
namespace {

// How many positions of a block each head attends to. Heads that are not asked for have any number,
// and keep their sums; their scores and p are scratch.
struct HeadLimits {
    __m512i counts;  // Of each head.
    size_t least;    // Of all of them.
    size_t most;
    __mmask16 heads;

    static HeadLimits of(const HeadsState& s, const AttendBlock& b) {
        return {_mm512_set1_epi32(static_cast<int>(b.num_positions)),
                b.num_positions,
                b.num_positions,
                heads_between(b.first_head, b.end_of_heads(s))};
    }
    static __mmask16 heads_between(size_t first, size_t last) {
        return static_cast<__mmask16>((1u << last) - (1u << first));
    }
    // Heads that attend to a position.
    __mmask16 at(size_t position) const {
        return _mm512_cmpgt_epi32_mask(counts, _mm512_set1_epi32(static_cast<int>(position)));
    }
};

// The step of ops/cpu/softmax_row.h for 16 heads, a lane each, with its bits: the maximum, then add
// for every fourth position, then end. p is [pair of positions][kHeadLanes][2]; a pair's second
// half beyond the last position is 0.
class SoftmaxStep {
  public:
    static constexpr size_t kPositions = 4;  // Of one add.

    // score_of(position): of the positions in turn, as it then stands in s.scores.
    template <typename ScoreOf>
    [[gnu::always_inline]] SoftmaxStep(const HeadsState& s,
                                       const HeadLimits& limits,
                                       const ScoreOf& score_of)
        : s_(s), limits_(limits), maximum_(_mm512_load_ps(s.maximum)) {
        __m512 tops[4] = {maximum_, maximum_, maximum_, maximum_};
        // A NaN score counts for no maximum; its p is NaN.
        size_t i = 0;
        for (; i + 4 <= limits.least; i += 4) {
            unrolled<4>([&](size_t k) __attribute__((always_inline)) {
                tops[k] = _mm512_max_ps(score_of(i + k), tops[k]);
            });
        }
        for (; i < limits.most; ++i) {
            tops[0] = _mm512_mask_max_ps(tops[0], limits.at(i), score_of(i), tops[0]);
        }
        top_ = _mm512_max_ps(_mm512_max_ps(tops[0], tops[1]), _mm512_max_ps(tops[2], tops[3]));
        for (__m512& sum : sums_) sum = _mm512_setzero_ps();
    }

    const HeadsState& state() const { return s_; }
    size_t num_positions() const { return limits_.most; }

    // The positions from `position` on, a multiple of kPositions.
    [[gnu::always_inline]] void add(size_t position) {
        // Lane i of the first half beside lane i of the second.
        const __m512i lanes =
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i interleave = _mm512_or_si512(
            lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(16)), 16));
        __m512 p[kPositions];
        unrolled<kPositions>([&](size_t i) __attribute__((always_inline)) {
            p[i] = _mm512_sub_ps(_mm512_load_ps(s_.scores + (position + i) * kHeadLanes), top_);
        });
        exp_each(p);
        if (position + kPositions > limits_.least) {
            unrolled<kPositions>([&](size_t i) __attribute__((always_inline)) {
                p[i] = _mm512_maskz_mov_ps(limits_.at(position + i), p[i]);
            });
        }
        unrolled<kPositions>([&](size_t i) __attribute__((always_inline)) {
            sums_[position % 16 + i] = _mm512_add_ps(sums_[position % 16 + i], p[i]);
        });
        unrolled<kPositions / 2>([&](size_t pair) __attribute__((always_inline)) {
            const size_t i = 2 * pair;
            // Rounds to nearest even like round_high(), but a denormal to zero, as which
            // vdpbf16ps takes it anyway.
            const auto both = (__m512i)_mm512_cvtne2ps_pbh(p[i + 1], p[i]);
            _mm512_store_si512(s_.p + (position + i) * kHeadLanes,
                               _mm512_permutexvar_epi16(interleave, both));
        });
    }

    void end() {
        for (size_t half = 8; half > 0; half /= 2) {
            for (size_t i = 0; i < half; ++i) sums_[i] = _mm512_add_ps(sums_[i], sums_[i + half]);
        }
        const __m512 alpha = exp_16(_mm512_sub_ps(maximum_, top_));
        const __m512 sum = _mm512_mul_ps(_mm512_load_ps(s_.sum), alpha);
        _mm512_store_ps(s_.alpha, alpha);
        _mm512_mask_store_ps(s_.sum, limits_.heads, _mm512_add_ps(sum, sums_[0]));
        _mm512_mask_store_ps(s_.maximum, limits_.heads, top_);
    }

  private:
    const HeadsState& s_;
    HeadLimits limits_;
    __m512 maximum_;
    __m512 top_;
    __m512 sums_[16];
};

// All of it, for the block's heads; between() is called behind every add.
template <typename ScoreOf, typename Between>
[[gnu::always_inline]] inline void softmax_of_heads(const HeadsState& s,
                                                    const AttendBlock& b,
                                                    const ScoreOf& score_of,
                                                    const Between& between) {
    SoftmaxStep step(s, HeadLimits::of(s, b), score_of);
    for (size_t i = 0; i < b.num_positions; i += SoftmaxStep::kPositions) {
        step.add(i);
        between();
    }
    step.end();
}

}  // namespace
}  // namespace afd::ops::cpu
