// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scores and sums of values for ops/cpu/attend_floats.h on 8 lanes: an element of a key goes to
// lane i mod 16 in one chain a lane, lanes meet as in ops/tensor/lanes.h, and a column of `o` is
// one chain over the positions. Of sixteen elements of a query the even ones stand before the odd
// ones. Included by ops/cpu/avx2/kernels_avx2.cc only.
//
// A key and a value become floats once for four heads, by a shift and a mask for sixteen elements
// (ops/cpu/avx2/tile_avx2.h).

#include <immintrin.h>

#include <algorithm>

#include "ops/cpu/attend_floats.h"
#include "ops/cpu/avx2/tile_avx2.h"
#include "ops/cpu/avx2/words_avx2.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// Scores of one tile: heads · positions.
constexpr size_t kTileScores = 4;

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

inline void expand_queries(const Bf16* rows, size_t num_heads, size_t count, float* floats) {
    for (size_t head = 0; head < num_heads; ++head, rows += count) {
        for (size_t i = 0; i < count; i += 16, floats += 16) {
            const Columns values = load_values(rows + i, std::min<size_t>(count - i, 16));
            _mm256_storeu_ps(floats, values.even);
            _mm256_storeu_ps(floats + 8, values.odd);
        }
    }
}

// sums[head · positions + position] += query · key, lane by lane. Keys lie `count` elements apart.
template <size_t kHeads, size_t kPositions>
[[gnu::always_inline]] inline void add_products(const float* queries,
                                                const Bf16* keys,
                                                size_t count,
                                                Columns (&sums)[kTileScores]) {
    const size_t width = query_width(count);
    const auto step = [&](size_t i, size_t left) __attribute__((always_inline)) {
        unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
            const Columns key = load_values(keys + p * count + i, left);
            unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
                Columns& sum = sums[h * kPositions + p];
                const float* query = queries + h * width + i;
                sum.even = _mm256_fmadd_ps(_mm256_loadu_ps(query), key.even, sum.even);
                sum.odd = _mm256_fmadd_ps(_mm256_loadu_ps(query + 8), key.odd, sum.odd);
            });
        });
    };
    size_t i = 0;
    for (; i + 16 <= count; i += 16) step(i, 16);
    if (i < count) step(i, count - i);
}

// Of eight lanes, every second one of the sixteen: the upper four to the lower ones.
[[gnu::always_inline]] inline __m128 fold(__m256 lanes) {
    return _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
}

// Of four times four lanes: the upper two to the lower ones, then these two.
[[gnu::always_inline]] inline __m128 fold_all(__m128 a, __m128 b, __m128 c, __m128 d) {
    const __m128 ab = _mm_add_ps(_mm_shuffle_ps(a, b, 0x44), _mm_shuffle_ps(a, b, 0xee));
    const __m128 cd = _mm_add_ps(_mm_shuffle_ps(c, d, 0x44), _mm_shuffle_ps(c, d, 0xee));
    return _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd));
}

// The sums of the lanes, by halves.
[[gnu::always_inline]] inline __m128 sums_of_lanes(const Columns (&sums)[kTileScores]) {
    const __m128 even =
        fold_all(fold(sums[0].even), fold(sums[1].even), fold(sums[2].even), fold(sums[3].even));
    const __m128 odd =
        fold_all(fold(sums[0].odd), fold(sums[1].odd), fold(sums[2].odd), fold(sums[3].odd));
    return _mm_add_ps(even, odd);
}

// Scores of kHeads heads from `head` on and kPositions positions from `first` on.
template <size_t kHeads, size_t kPositions>
void score_tile(const HeadsState& s, const AttendBlock& b, size_t head, size_t first) {
    static_assert(kHeads * kPositions <= kTileScores);
    Columns sums[kTileScores];
    unrolled<kTileScores>([&](size_t i) __attribute__((always_inline)) {
        sums[i] = {EightWords::zero(), EightWords::zero()};
    });
    const float* latent = latent_floats(s, head);
    const float* rope = rope_floats(s, head);
    add_products<kHeads, kPositions>(latent, b.ckv + first * s.latent, s.latent, sums);
    add_products<kHeads, kPositions>(rope, b.kr + first * s.rope, s.rope, sums);
    float scores[kTileScores];
    _mm_storeu_ps(scores, _mm_mul_ps(sums_of_lanes(sums), _mm_set1_ps(b.scale)));
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
            s.scores[(head + h) * kAttentionBlock + first + p] = scores[h * kPositions + p];
        });
    });
}

// o = o · alpha, then o += p · values, positions ascending; kBlocks times 16 columns, or the last
// `left` ones. p [head][kAttentionBlock] as floats.
template <size_t kHeads, size_t kBlocks, bool kIsWhole>
void accumulate_columns(const HeadsState& s,
                        const AttendBlock& b,
                        const float* p,
                        size_t head,
                        size_t column,
                        size_t left) {
    Columns sums[kHeads][kBlocks];
    float* const o = s.o + head * s.o_stride + column;
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        const __m256 alpha = _mm256_set1_ps(s.alpha[head + h]);
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            const Columns before = Columns::load(o + h * s.o_stride + 16 * c);
            sums[h][c] = {_mm256_mul_ps(before.even, alpha), _mm256_mul_ps(before.odd, alpha)};
        });
    });
    const Bf16* row = b.summed() + column;
    p += head * kAttentionBlock;
    for (size_t position = 0; position < b.num_positions; ++position, row += s.latent) {
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            const Columns value = load_values(row + 16 * c, kIsWhole ? 16 : left);
            unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
                const __m256 weight = _mm256_set1_ps(p[h * kAttentionBlock + position]);
                sums[h][c].even = _mm256_fmadd_ps(weight, value.even, sums[h][c].even);
                sums[h][c].odd = _mm256_fmadd_ps(weight, value.odd, sums[h][c].odd);
            });
        });
    }
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            sums[h][c].store(o + h * s.o_stride + 16 * c);
        });
    });
}

// What ops/cpu/attend_floats.h asks for.
struct AttendAvx2 {
    static constexpr size_t kHeadsMost = 4;
    static constexpr size_t kBlockColumns = 16;
    template <size_t kHeads>
    static constexpr size_t kPositions = kTileScores / kHeads;
    // Few heads have too few sums for the products to follow each other closely.
    template <size_t kHeads>
    static constexpr size_t kBlocks = 4 / kHeads;

    static void expand(const Bf16* rows, size_t num_heads, size_t count, float* floats) {
        expand_queries(rows, num_heads, count, floats);
    }
    template <size_t kHeads, size_t kPositions>
    static void score(const HeadsState& s, const AttendBlock& b, size_t head, size_t first) {
        score_tile<kHeads, kPositions>(s, b, head, first);
    }
    template <size_t kHeads, size_t kBlocks>
    static void add(
        const HeadsState& s, const AttendBlock& b, const float* p, size_t head, size_t column) {
        accumulate_columns<kHeads, kBlocks, true>(s, b, p, head, column, kBlockColumns);
    }
    template <size_t kHeads>
    static void add_last(const HeadsState& s,
                         const AttendBlock& b,
                         const float* p,
                         size_t head,
                         size_t column,
                         size_t left) {
        accumulate_columns<kHeads, 1, false>(s, b, p, head, column, left);
    }
};

}  // namespace
}  // namespace afd::ops::cpu
