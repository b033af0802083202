// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scores and sums of values for ops/cpu/attend_floats.h on 16 lanes, with the bits of class avx2:
// an element of a key goes to lane i mod 16 in one chain a lane, lanes meet as in
// ops/tensor/lanes.h, and a column of `o` is one chain over the positions. Included by
// ops/cpu/avx512/kernels_avx512.cc only.
//
// What makes floats of bf16 takes the ports of the multiplier, so a key and a value become floats
// once for eight heads.

#include <immintrin.h>

#include <algorithm>

#include "ops/cpu/attend_floats.h"
#include "ops/cpu/avx512/softmax_avx512.h"
#include "ops/cpu/avx512/tile_avx512.h"
#include "ops/cpu/avx512/words_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/key_pair_scores.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// Sums of one tile: heads · positions.
constexpr size_t kTileSums = 16;

// Positions of a tile; few heads take as many as the latency of a sum needs.
template <size_t kHeads>
inline constexpr size_t kTilePositions = kHeads <= 2   ? 8
                                         : kHeads <= 4 ? 4
                                                       : 2;

// Lines are fetched at each step: a few at once come as fast as one by one in class avx2 only,
// whose tiles take longer (four heads, a block from memory: 2.0 instead of 2.8 µs).
constexpr size_t kFetchSteps = 1;

// Heads whose queries stand together, sixteen elements of all of them in turns.
constexpr size_t kGroupHeads = 8;

// Where a head's query begins.
[[gnu::always_inline]] inline size_t query_place(size_t head, size_t width) {
    return head / kGroupHeads * kGroupHeads * width + head % kGroupHeads * 16;
}

inline void expand_queries(const Bf16* rows, size_t num_heads, size_t count, float* floats) {
    const size_t width = query_width(count);
    for (size_t head = 0; head < num_heads; ++head) {
        float* const to = floats + query_place(head, width);
        for (size_t i = 0; i < width; i += 16) {
            _mm512_storeu_ps(to + kGroupHeads * i, load_values(rows + head * count + i, count - i));
        }
    }
}

// sums[head · positions + position] += query · key, lane by lane. Keys lie `count` elements apart.
template <size_t kHeads, size_t kPositions>
[[gnu::always_inline]] inline void add_products(const float* queries,
                                                const Bf16* keys,
                                                size_t count,
                                                __m512 (&sums)[kTileSums]) {
    const auto step = [&](size_t i, size_t left) __attribute__((always_inline)) {
        __m512 key[kPositions];
        unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
            key[p] = load_values(keys + p * count + i, left);
        });
        unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
            const __m512 query = _mm512_loadu_ps(queries + kGroupHeads * i + 16 * h);
            unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
                sums[h * kPositions + p] = _mm512_fmadd_ps(query, key[p], sums[h * kPositions + p]);
            });
        });
    };
    size_t i = 0;
    for (; i + 16 <= count; i += 16) step(i, 16);
    if (i < count) step(i, count - i);
}

// Scores of kHeads heads.
template <size_t kHeads>
class ScoreTile {
  public:
    // REQUIRES: the heads are of one group.
    ScoreTile(const HeadsState& s, const AttendBlock& b, size_t head, ScoreRows& scores)
        : s_(s),
          b_(b),
          scores_(scores.row(head)),
          latent_(query_floats(s) + query_place(head, query_width(s.latent))),
          rope_(rope_floats(s) + query_place(head, query_width(s.rope))) {}

    template <size_t kPositions>
    [[gnu::always_inline]] void score(size_t first, LineFetches& keys) const {
        __m512 sums[kTileSums];
        unrolled<kTileSums>([&](size_t i)
                                __attribute__((always_inline)) { sums[i] = _mm512_setzero_ps(); });
        keys.next();
        add_products<kHeads, kPositions>(latent_, b_.ckv + first * s_.latent, s_.latent, sums);
        keys.next();
        add_products<kHeads, kPositions>(rope_, b_.kr + first * s_.rope, s_.rope, sums);
        alignas(64) float scores[kTileSums];
        _mm512_store_ps(scores, _mm512_mul_ps(sums_of_lanes(sums), _mm512_set1_ps(b_.scale)));
        unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
            unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
                const size_t i = h * kPositions + p;
                scores_[h * kRowFloats + first + p] = scores[i % 4 * 4 + i / 4];
            });
        });
    }

  private:
    const HeadsState& s_;
    const AttendBlock& b_;
    float* scores_;
    const float* latent_;
    const float* rope_;
};

template <size_t kHeads, size_t kBlocks, bool kIsWhole>
void accumulate_columns(const SumTile& tile) {
    using Lanes = SixteenWords;
    __m512 even[kHeads][kBlocks];
    __m512 odd[kHeads][kBlocks];
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        const __m512 alpha = _mm512_set1_ps(tile.alpha(h));
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            const float* from = tile.sums(h) + 32 * c;
            const __m512 low = _mm512_mul_ps(_mm512_loadu_ps(from), alpha);
            const __m512 high = _mm512_mul_ps(_mm512_loadu_ps(from + 16), alpha);
            even[h][c] = _mm512_permutex2var_ps(low, even_columns(), high);
            odd[h][c] = _mm512_permutex2var_ps(low, odd_columns(), high);
        });
    });
    const size_t row_elements = tile.s.latent;
    const Bf16* row = tile.values();
    const auto mask = static_cast<__mmask32>((uint64_t{1} << tile.left) - 1);
    const float* const weights = tile.weights();
    const auto add = [&](size_t position) __attribute__((always_inline)) {
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            const __m512i words = kIsWhole ? _mm512_loadu_si512(row + 32 * c)
                                           : _mm512_maskz_loadu_epi16(mask, row + 32 * c);
            const __m512 v_even = Lanes::low_half(words);
            const __m512 v_odd = Lanes::high_half(words);
            unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
                const __m512 weight = _mm512_set1_ps(weights[h * kRowFloats + position]);
                even[h][c] = _mm512_fmadd_ps(weight, v_even, even[h][c]);
                odd[h][c] = _mm512_fmadd_ps(weight, v_odd, odd[h][c]);
            });
        });
        row += row_elements;
    };
    size_t position = tile.first;
    for (; position + kFetchSteps <= tile.last; position += kFetchSteps) {
        tile.fetches.next();
        unrolled<kFetchSteps>([&](size_t i) __attribute__((always_inline)) { add(position + i); });
    }
    for (; position < tile.last; ++position) add(position);
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            float* to = tile.sums(h) + 32 * c;
            _mm512_storeu_ps(to, _mm512_permutex2var_ps(even[h][c], low_columns(), odd[h][c]));
            _mm512_storeu_ps(to + 16,
                             _mm512_permutex2var_ps(even[h][c], high_columns(), odd[h][c]));
        });
    });
}

// What ops/cpu/attend_floats.h and ops/cpu/key_pair_scores.h ask for.
struct AttendAvx512 {
    using Lanes = SixteenWords;
    static constexpr size_t kPairScores = 16;
    static constexpr size_t kNextHead = 16;
    static constexpr size_t kNextPair = 2;
    static constexpr size_t kOddPlace = 1;
    static constexpr size_t kNextSixteen = 16 * kGroupHeads;
    static size_t query_place(size_t head, size_t width) { return cpu::query_place(head, width); }
    template <bool kIsOdd>
    static __m512 half_of(__m512i words) {
        return kIsOdd ? SixteenWords::high_half(words) : SixteenWords::low_half(words);
    }
    static __m512i load_some(const Bf16* from, size_t count) {
        return _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << count) - 1), from);
    }

    static constexpr size_t kScoreHeads = kGroupHeads;
    static constexpr size_t kScoreParts = 2;
    static constexpr size_t kFetchSteps = cpu::kFetchSteps;
    static constexpr size_t kSumHeads = 8;
    static constexpr size_t kBlockColumns = 32;
    template <size_t kHeads>
    static constexpr size_t kPositions = kTilePositions<kHeads>;
    // Few heads have too few sums for the products to follow each other closely.
    template <size_t kHeads>
    static constexpr size_t kBlocks = kHeads > 4   ? 1
                                      : kHeads > 2 ? 2
                                                   : 4;

    static void expand(const Bf16* rows, size_t num_heads, size_t count, float* floats) {
        expand_queries(rows, num_heads, count, floats);
    }
    template <size_t kHeads>
    static ScoreTile<kHeads> score_tile(const HeadsState& s,
                                        const AttendBlock& b,
                                        size_t head,
                                        ScoreRows& scores) {
        return {s, b, head, scores};
    }
    static void softmax(const HeadsState& s,
                        const AttendBlock& b,
                        ScoreRows& scores,
                        ScoreRows& p) {
        softmax_avx512(s, b, scores, p);
    }
    template <size_t kHeads, size_t kBlocks, bool kIsWhole>
    static void add(const SumTile& tile) {
        accumulate_columns<kHeads, kBlocks, kIsWhole>(tile);
    }
};

}  // namespace
}  // namespace afd::ops::cpu
