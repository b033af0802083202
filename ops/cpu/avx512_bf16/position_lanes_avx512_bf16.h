// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scores and probabilities of few heads, with registers whose lanes are positions. Where the lanes
// are heads (ops/cpu/avx512_bf16/head_lanes_avx512_bf16.h) those without one are idle: fifteen of
// sixteen where each head has keys of its own. Here sixteen keys are turned into their columns,
// which costs the same however few heads meet them. Chains and trees of sums are the same, and so
// are the bits. Scores and p are [head][kAttentionBlock].
//
// Included by ops/cpu/avx512_bf16/attention_avx512_bf16.h only.

#include <immintrin.h>

#include <algorithm>
#include <limits>
#include <span>

#include "ops/cpu/avx512/math_avx512.h"
#include "ops/cpu/avx512_bf16/head_lanes_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/tile_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"

namespace afd::ops::cpu {
namespace {

// Heads that are faster this way than as lanes.
constexpr size_t kFewHeads = 8;

// Of some positions' keys, `count` elements each, one behind the other, and as many that are
// fetched meanwhile; null: none.
struct KeyRows {
    const Bf16* keys;
    const Bf16* next;
    size_t count;
};

// Columns [pair] of sixteen keys from `first` on, of which `num_rows` are; elements [i, i + 32).
[[gnu::always_inline]] inline void turn_keys(
    const KeyRows& rows, size_t first, size_t num_rows, size_t i, __m512i (&columns)[kHeadLanes]) {
    const size_t left = std::min(rows.count - i, kLineElements);
    const auto mask = static_cast<__mmask32>(~uint32_t{0} >> (kLineElements - left));
    const Bf16* keys = rows.keys + first * rows.count + i;
    __m512i turned[kHeadLanes];
    unrolled<kHeadLanes>([&](size_t r) __attribute__((always_inline)) {
        turned[r] = r < num_rows ? _mm512_maskz_loadu_epi16(mask, keys + r * rows.count)
                                 : _mm512_setzero_si512();
    });
    if (rows.next != nullptr) {
        const Bf16* next = rows.next + first * rows.count + i;
        for (size_t r = 0; r < kHeadLanes; ++r) {
            fetch_to_second_level(reinterpret_cast<uintptr_t>(next + r * rows.count));
        }
    }
    transpose(turned);
    unrolled<kHeadLanes>([&](size_t r) __attribute__((always_inline)) { columns[r] = turned[r]; });
}

// sums[head][tile] += query · key for `num_rows` positions, pairs ascending, in one chain.
// `query`: turned.
template <size_t kHeads, size_t kTiles>
[[gnu::always_inline]] inline void add_columns(const KeyRows& rows,
                                               const Bf16* query,
                                               size_t num_rows,
                                               __m512 (&sums)[kHeads][kTiles]) {
    __m512i columns[kTiles][kHeadLanes];
    for (size_t i = 0; i < rows.count; i += kLineElements) {
        for (size_t t = 0; t < kTiles; ++t) {
            const size_t first = t * kHeadLanes;
            turn_keys(rows, first, num_rows - std::min(num_rows, first), i, columns[t]);
        }
        const Bf16* pairs = query + i * kHeadLanes;
        const size_t num_pairs = (std::min(rows.count - i, kLineElements) + 1) / 2;
        for (size_t pair = 0; pair < num_pairs; ++pair) {
            unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
                const __m512i q = _mm512_set1_epi32(pair_at(pairs + 2 * (pair * kHeadLanes + h)));
                unrolled<kTiles>([&](size_t t) __attribute__((always_inline)) {
                    sums[h][t] = dot(sums[h][t], columns[t][pair], q);
                });
            });
        }
    }
}

// Whether the scores of this block fetch the next one's keys.
inline bool fetches_next(const AttendBlock& b) {
    return b.num_positions == kAttentionBlock && b.num_next == kAttentionBlock;
}

// Scores of kTiles times sixteen positions from `first` on, or of those that are left.
template <size_t kHeads, size_t kTiles>
void score_columns(const HeadsState& s, const AttendBlock& b, size_t first) {
    constexpr size_t kPositions = kTiles * kHeadLanes;
    const size_t num_rows = std::min(b.num_positions - first, kPositions);
    const bool fetches = fetches_next(b);
    __m512 sums[kHeads][kTiles];
    for (auto& of_head : sums) {
        for (__m512& sum : of_head) sum = _mm512_setzero_ps();
    }
    add_columns<kHeads, kTiles>(
        {b.ckv + first * s.latent, fetches ? b.next_ckv + first * s.latent : nullptr, s.latent},
        s.query,
        num_rows,
        sums);
    add_columns<kHeads, kTiles>(
        {b.kr + first * s.rope, fetches ? b.next_kr + first * s.rope : nullptr, s.rope},
        s.query + turned_size(s.latent),
        num_rows,
        sums);
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        unrolled<kTiles>([&](size_t t) __attribute__((always_inline)) {
            _mm512_store_ps(s.scores + h * kAttentionBlock + first + t * kHeadLanes,
                            _mm512_mul_ps(sums[h][t], _mm512_set1_ps(b.scale)));
        });
    });
}

template <size_t kHeads>
void score_by_columns(const HeadsState& s, const AttendBlock& b) {
    // As many sums as the registers hold beside what is multiplied.
    constexpr size_t kTiles = kHeads > 4 ? 2 : 4;
    for (size_t first = 0; first < b.num_positions; first += kTiles * kHeadLanes) {
        score_columns<kHeads, kTiles>(s, b, first);
    }
}

// REQUIRES: s.num_heads <= kFewHeads.
void score_few_heads(const HeadsState& s, const AttendBlock& b) {
    switch (s.num_heads) {
        case 1:
            return score_by_columns<1>(s, b);
        case 2:
            return score_by_columns<2>(s, b);
        case 3:
        case 4:
            return score_by_columns<4>(s, b);
        case 5:
        case 6:
            return score_by_columns<6>(s, b);
        default:
            return score_by_columns<8>(s, b);
    }
}

// What is fetched while something is computed. Its end may be beyond that of an array.
struct FetchRange {
    uintptr_t at = 0;
    size_t bytes = 0;

    // Takes `count` bytes away from the front.
    FetchRange take(size_t count) {
        const FetchRange front{at, count};
        at += count;
        bytes -= count;
        return front;
    }
};

inline FetchRange range_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<uintptr_t>(bytes.data()), bytes.size()};
}

inline void fetch_lines(FetchRange range) {
    for (size_t i = 0; i < range.bytes; i += kLineBytes) fetch_to_first_level(range.at + i);
}

// The sum of sixteen lanes, as SoftmaxStep adds its sixteen registers.
inline float sum_of_lanes(__m512 lanes) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Of a block's positions: which lanes of each part's register count.
constexpr size_t kPositionParts = kAttentionBlock / kHeadLanes;
using PositionMasks = __mmask16[kPositionParts];

inline void mask_positions(size_t num_positions, PositionMasks& masks) {
    for (size_t i = 0; i < kPositionParts; ++i) {
        const size_t before = std::min(i * kHeadLanes, num_positions);
        const size_t count = std::min(num_positions - before, kHeadLanes);
        masks[i] = static_cast<__mmask16>((1u << count) - 1);
    }
}

// The largest score of a head, and of those before.
inline float top_of_head(const HeadsState& s, const PositionMasks& masks, size_t head) {
    const float* scores = s.scores + head * kAttentionBlock;
    __m512 tops = _mm512_set1_ps(s.maximum[head]);
    for (size_t i = 0; i < kPositionParts; ++i) {
        // A NaN score counts for no maximum; its p is NaN.
        tops = _mm512_mask_max_ps(tops, masks[i], _mm512_load_ps(scores + i * kHeadLanes), tops);
    }
    return _mm512_reduce_max_ps(tops);
}

// Stores p of a head and returns their sum before they were rounded.
inline float weigh_positions(const HeadsState& s,
                             const PositionMasks& masks,
                             size_t head,
                             float top) {
    const float* scores = s.scores + head * kAttentionBlock;
    __m512 p[kPositionParts];
    for (size_t i = 0; i < kPositionParts; ++i) {
        p[i] = _mm512_sub_ps(_mm512_load_ps(scores + i * kHeadLanes), _mm512_set1_ps(top));
    }
    exp_each(p);
    __m512 sums = _mm512_setzero_ps();
    for (size_t i = 0; i < kPositionParts; ++i) {
        p[i] = _mm512_maskz_mov_ps(masks[i], p[i]);
        sums = _mm512_add_ps(sums, p[i]);
    }
    for (size_t i = 0; i < kPositionParts; i += 2) {
        // Rounds to nearest even like round_high(), but a denormal to zero, as which vdpbf16ps
        // takes it anyway.
        const auto both = (__m512i)_mm512_cvtne2ps_pbh(p[i + 1], p[i]);
        _mm512_store_si512(s.p + head * kAttentionBlock + i * kHeadLanes, both);
    }
    return sum_of_lanes(sums);
}

// What softmax_of_heads() does (ops/cpu/avx512_bf16/softmax_avx512_bf16.h), for the block's heads.
// Fetches `fetched` meanwhile.
inline void softmax_of_positions(const HeadsState& s, const AttendBlock& b, FetchRange fetched) {
    PositionMasks masks;
    mask_positions(b.num_positions, masks);
    alignas(64) float tops[kHeadLanes]{};
    alignas(64) float sums[kHeadLanes]{};
    const size_t last = b.end_of_heads(s);
    for (size_t head = b.first_head; head < last; ++head) tops[head] = top_of_head(s, masks, head);
    for (size_t head = b.first_head; head < last; ++head) {
        sums[head] = weigh_positions(s, masks, head, tops[head]);
        fetch_lines(fetched.take(fetched.bytes / (last - head)));
    }
    const auto heads = static_cast<__mmask16>((1u << last) - (1u << b.first_head));
    const __m512 top = _mm512_load_ps(tops);
    const __m512 alpha = exp_16(_mm512_sub_ps(_mm512_load_ps(s.maximum), top));
    const __m512 sum = _mm512_mul_ps(_mm512_load_ps(s.sum), alpha);
    _mm512_mask_store_ps(s.alpha, heads, alpha);
    _mm512_mask_store_ps(s.sum, heads, _mm512_add_ps(sum, _mm512_load_ps(sums)));
    _mm512_mask_store_ps(s.maximum, heads, top);
}

}  // namespace
}  // namespace afd::ops::cpu
