// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scores and sums of values for ops/cpu/attend_float_block.h on 8 lanes: an element of a key goes
// to lane i mod 16 in one chain a lane, lanes meet as in ops/tensor/lanes.h, and a column of `o` is
// one chain over the positions. Of sixteen elements of a query the even ones stand before the odd
// ones. Included by ops/cpu/avx2/kernels_avx2.cc only.
//
// A key and a value become floats once for some heads, by a shift and a mask for sixteen elements
// (ops/cpu/avx2/tile_avx2.h). Tiles have twelve sums where they can: eight are as many as the
// multiplier's latency asks for, and whatever else delays one of them is lost.

#include <immintrin.h>

#include <algorithm>
#include <array>

#include "ops/cpu/attend_floats.h"
#include "ops/cpu/avx2/softmax_avx2.h"
#include "ops/cpu/avx2/tile_avx2.h"
#include "ops/cpu/avx2/words_avx2.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/key_pair_scores.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// Sixteen values from there on, or as many as are left, then zeros.
[[gnu::always_inline]] inline Columns load_values(const Bf16* x, size_t left) {
    Bf16 padded[16] = {};
    if (left < 16) {
        std::copy_n(x, left, padded);
        x = padded;
    }
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    return {EightWords::low_half(words), EightWords::high_half(words)};
}

// Steps after which a few lines are fetched.
constexpr size_t kFetchSteps = 4;

// Heads whose queries stand together: of each sixteen elements the even ones of all of them, then
// the odd ones, so that a tile of these heads needs one pointer.
constexpr size_t kGroupHeads = 4;

// Where a head's query begins, and how far its odd elements are from its even ones.
[[gnu::always_inline]] inline size_t query_place(size_t head, size_t width) {
    return head / kGroupHeads * kGroupHeads * width + head % kGroupHeads * EightWords::kWidth;
}
constexpr size_t kOddPlace = kGroupHeads * EightWords::kWidth;

inline void expand_queries(const Bf16* rows, size_t num_heads, size_t count, float* floats) {
    const size_t width = query_width(count);
    for (size_t head = 0; head < num_heads; ++head, rows += count) {
        float* to = floats + query_place(head, width);
        for (size_t i = 0; i < count; i += 16, to += 2 * kOddPlace) {
            const Columns values = load_values(rows + i, std::min<size_t>(count - i, 16));
            EightWords::store(to, values.even);
            EightWords::store(to + kOddPlace, values.odd);
        }
    }
}

// Of sixteen elements that follow each other, those at even or those at odd places. The mask of
// these from memory: tiles have no register left for it.
template <bool kIsOdd>
[[gnu::always_inline]] inline __m256 half_of(__m256i words) {
    if constexpr (!kIsOdd) return EightWords::low_half(words);
    alignas(32) static constexpr std::array<uint32_t, 8> kMask = [] {
        std::array<uint32_t, 8> mask{};
        mask.fill(0xffff0000u);
        return mask;
    }();
    asm("vpand %1, %0, %0" : "+x"(words) : "m"(kMask));
    return EightWords::floats(words);
}

template <bool kIsOdd>
[[gnu::always_inline]] inline __m256 load_half(const Bf16* x) {
    return half_of<kIsOdd>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}

// sums[head · positions + position] += query · key, lane by lane. Keys lie `count` elements apart.
template <size_t kHeads, size_t kPositions, bool kIsOdd>
[[gnu::always_inline]] inline void add_products(const float* queries,
                                                const Bf16* keys,
                                                size_t count,
                                                __m256 (&sums)[kHeads * kPositions]) {
    constexpr size_t kPlace = kIsOdd ? kOddPlace : 0;
    const auto step = [&](size_t i, auto key_of) __attribute__((always_inline)) {
        __m256 key[kPositions];
        unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
            key[p] = key_of(keys + p * count + i);
        });
        unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
            const __m256 query =
                EightWords::load(queries + kGroupHeads * i + h * EightWords::kWidth + kPlace);
            unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
                __m256& sum = sums[h * kPositions + p];
                sum = EightWords::fused(query, key[p], sum);
            });
        });
    };
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        step(i, load_half<kIsOdd>);
        step(i + 16, load_half<kIsOdd>);
    }
    for (; i + 16 <= count; i += 16) step(i, load_half<kIsOdd>);
    if (i < count) {
        step(i, [&](const Bf16* key) {
            const Columns values = load_values(key, count - i);
            return kIsOdd ? values.odd : values.even;
        });
    }
}

// Scores of kHeads heads. The even elements of all keys, then the odd ones: so registers hold the
// sums of twelve scores beside what is multiplied, and a key becomes floats once for all heads.
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
        if constexpr (kHeads == 1) return score_one<kPositions>(first, keys);
        __m256 even[kFolds];
        __m256 odd[kFolds];
        half<kPositions, false>(first, keys, even);
        half<kPositions, true>(first, keys, odd);
        unrolled<kFolds>([&](size_t f) __attribute__((always_inline)) {
            const __m256 sums = _mm256_add_ps(even[f], odd[f]);
            const __m256 scores = _mm256_mul_ps(sums, _mm256_set1_ps(b_.scale));
            float* const to = scores_ + 8 * f / kSlots * kRowFloats + first;
            _mm_storeu_ps(to, _mm256_castps256_ps128(scores));
            if (2 * f + 1 == kHeads) return;
            _mm_storeu_ps(to + kRowFloats, _mm256_extractf128_ps(scores, 1));
        });
    }

  private:
    // Of a head's scores, so that they are stored at once.
    static constexpr size_t kSlots = 4;
    static constexpr size_t kFolds = (kHeads * kSlots + 7) / 8;

    // Of one head: even and odd elements at once, since nothing else shares a key.
    template <size_t kPositions>
    [[gnu::always_inline]] void score_one(size_t first, LineFetches& keys) const {
        Columns sums[kPositions];
        unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
            sums[p] = {EightWords::zero(), EightWords::zero()};
        });
        const auto add = [&](const float* query, const Bf16* rows, size_t count) {
            for (size_t i = 0; i < count; i += 16) {
                const float* q = query + kGroupHeads * i;
                unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
                    const Columns key = load_values(rows + p * count + i, count - i);
                    sums[p].even = EightWords::fused(EightWords::load(q), key.even, sums[p].even);
                    sums[p].odd =
                        EightWords::fused(EightWords::load(q + kOddPlace), key.odd, sums[p].odd);
                });
            }
        };
        keys.next();
        add(latent_, b_.ckv + first * s_.latent, s_.latent);
        keys.next();
        add(rope_, b_.kr + first * s_.rope, s_.rope);
        __m256 lanes[8];
        unrolled<8>([&](size_t i) __attribute__((always_inline)) {
            const Columns& of = sums[std::min(i % kSlots, kPositions - 1)];
            lanes[kLanePlaces[i]] = i < kSlots ? of.even : of.odd;
        });
        const __m256 halves = fold<Added>(lanes);
        const __m128 both =
            _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
        _mm_storeu_ps(scores_ + first, _mm_mul_ps(both, _mm_set1_ps(b_.scale)));
    }

    template <size_t kPositions, bool kIsOdd>
    [[gnu::always_inline]] void half(size_t first,
                                     LineFetches& keys,
                                     __m256 (&folded)[kFolds]) const {
        static_assert(kPositions <= kSlots);
        keys.next();
        __m256 sums[kHeads * kPositions];
        unrolled<kHeads * kPositions>([&](size_t i) __attribute__((always_inline)) {
            sums[i] = EightWords::zero();
        });
        add_products<kHeads, kPositions, kIsOdd>(
            latent_, b_.ckv + first * s_.latent, s_.latent, sums);
        add_products<kHeads, kPositions, kIsOdd>(rope_, b_.kr + first * s_.rope, s_.rope, sums);
        unrolled<kFolds>([&](size_t f) __attribute__((always_inline)) {
            __m256 lanes[8];
            unrolled<8>([&](size_t i) __attribute__((always_inline)) {
                const size_t h = std::min((8 * f + i) / kSlots, kHeads - 1);
                const size_t p = std::min((8 * f + i) % kSlots, kPositions - 1);
                lanes[kLanePlaces[i]] = sums[h * kPositions + p];
            });
            folded[f] = fold<Added>(lanes);
        });
    }

    const HeadsState& s_;
    const AttendBlock& b_;
    float* scores_;
    const float* latent_;
    const float* rope_;
};

// Rows of values, of which sixteen columns at a time become floats.
struct ValueRows {
    const Bf16* row;
    size_t row_elements;

    // `left` columns unless kIsWhole.
    template <bool kIsWhole>
    [[gnu::always_inline]] Columns load(size_t column, size_t left) const {
        return load_values(row + column, kIsWhole ? 16 : left);
    }
    [[gnu::always_inline]] void next() { row += row_elements; }
};

// Of sixteen columns of o the even ones stand before the odd ones. rows: ValueRows, or others that
// have load() and next(), from the tile's first position and column on.
template <size_t kHeads, size_t kBlocks, bool kIsWhole, typename Rows>
void accumulate_columns(const SumTile& tile, Rows rows) {
    Columns sums[kHeads][kBlocks];
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        const __m256 alpha = _mm256_set1_ps(tile.alpha(h));
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            const float* from = tile.sums(h) + 16 * c;
            sums[h][c] = {_mm256_mul_ps(EightWords::load(from), alpha),
                          _mm256_mul_ps(EightWords::load(from + 8), alpha)};
        });
    });
    const float* const weights = tile.weights();
    const auto add = [&](size_t position) __attribute__((always_inline)) {
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            const Columns value = rows.template load<kIsWhole>(16 * c, tile.left);
            unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
                const __m256 weight = EightWords::broadcast(weights[h * kRowFloats + position]);
                sums[h][c].even = EightWords::fused(weight, value.even, sums[h][c].even);
                sums[h][c].odd = EightWords::fused(weight, value.odd, sums[h][c].odd);
            });
        });
        rows.next();
    };
    size_t position = tile.first;
    for (; position + kFetchSteps <= tile.last; position += kFetchSteps) {
        tile.fetches.next();
        unrolled<kFetchSteps>([&](size_t i) __attribute__((always_inline)) { add(position + i); });
    }
    for (; position < tile.last; ++position) add(position);
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            float* const to = tile.sums(h) + 16 * c;
            EightWords::store(to, sums[h][c].even);
            EightWords::store(to + 8, sums[h][c].odd);
        });
    });
}

// o of a head to the order of its columns.
inline void finish_avx2(const HeadsState& s, Bf16* latent) {
    for (size_t head = 0; head < s.num_heads; ++head) {
        float* const o = s.o + head * s.o_stride;
        for (size_t column = 0; column < s.o_stride; column += 16) {
            const Columns columns{EightWords::load(o + column), EightWords::load(o + column + 8)};
            columns.store(o + column);
        }
    }
    finish_heads(s, latent);
}

// What ops/cpu/attend_floats.h and ops/cpu/key_pair_scores.h ask for.
struct AttendAvx2 {
    using Lanes = EightWords;
    static constexpr size_t kPairScores = 12;
    static constexpr size_t kNextHead = EightWords::kWidth;
    static constexpr size_t kNextPair = 1;
    static constexpr size_t kOddPlace = cpu::kOddPlace;
    static constexpr size_t kNextSixteen = 2 * cpu::kOddPlace;
    static size_t query_place(size_t head, size_t width) { return cpu::query_place(head, width); }
    template <bool kIsOdd>
    static __m256 half_of(__m256i words) {
        return cpu::half_of<kIsOdd>(words);
    }
    static __m256i load_some(const Bf16* from, size_t count) {
        const __m256i is_there = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                                                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        return _mm256_maskload_epi32(reinterpret_cast<const int*>(from), is_there);
    }
    static constexpr size_t kScoreHeads = kGroupHeads;
    static constexpr size_t kScoreParts = 2;
    static constexpr size_t kFetchSteps = cpu::kFetchSteps;
    static constexpr size_t kSumHeads = 6;
    static constexpr size_t kBlockColumns = 16;
    template <size_t kHeads>
    static constexpr size_t kPositions = kHeads < kGroupHeads ? 4 : 3;
    // Few heads have too few sums for the products to follow each other closely.
    template <size_t kHeads>
    static constexpr size_t kBlocks = kHeads == 1   ? 4
                                      : kHeads <= 3 ? 2
                                                    : 1;

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
        softmax_avx2(s, b, scores, p);
    }
    template <size_t kHeads, size_t kBlocks, bool kIsWhole>
    static void add(const SumTile& tile) {
        accumulate_columns<kHeads, kBlocks, kIsWhole>(tile,
                                                      ValueRows{tile.values(), tile.s.latent});
    }
    static void finish(const HeadsState& s, Bf16* latent) { finish_avx2(s, latent); }
};

}  // namespace
}  // namespace afd::ops::cpu
