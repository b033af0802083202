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
#include "ops/cpu/avx512/tile_avx512.h"
#include "ops/cpu/avx512/words_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// Sums of one tile: heads · positions.
constexpr size_t kTileSums = 16;

// Heads and positions of a tile; one head takes as many positions as the latency of a sum needs.
template <size_t kHeads>
inline constexpr size_t kTilePositions = kHeads == 1 ? 8 : kTileSums / kHeads;

// The sixteen values of a row from x on, or as many as are left, then zeros.
[[gnu::always_inline]] inline __m512 load_values(const Bf16* x, size_t left) {
    const __m256i half =
        left >= 16 ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))
                   : _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << left) - 1), x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

inline void expand_queries(const Bf16* rows, size_t num_heads, size_t count, float* floats) {
    const size_t width = query_width(count);
    for (size_t head = 0; head < num_heads; ++head) {
        for (size_t i = 0; i < width; i += 16) {
            _mm512_storeu_ps(floats + head * width + i,
                             load_values(rows + head * count + i, count - i));
        }
    }
}

// sums[head · positions + position] += query · key, lane by lane. Keys lie `count` elements apart.
template <size_t kHeads, size_t kPositions>
[[gnu::always_inline]] inline void add_products(const float* queries,
                                                const Bf16* keys,
                                                size_t count,
                                                __m512 (&sums)[kTileSums]) {
    const size_t width = query_width(count);
    const auto step = [&](size_t i, size_t left) __attribute__((always_inline)) {
        __m512 key[kPositions];
        unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
            key[p] = load_values(keys + p * count + i, left);
        });
        unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
            const __m512 query = _mm512_loadu_ps(queries + h * width + i);
            unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
                sums[h * kPositions + p] = _mm512_fmadd_ps(query, key[p], sums[h * kPositions + p]);
            });
        });
    };
    size_t i = 0;
    for (; i + 16 <= count; i += 16) step(i, 16);
    if (i < count) step(i, count - i);
}

// The sums of the lanes of sixteen registers, by halves; that of register i in lane
// i % 4 · 4 + i / 4.
[[gnu::always_inline]] inline __m512 sums_of_lanes(const __m512 (&lanes)[kTileSums]) {
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

// Scores of kHeads heads from `head` on and kPositions positions from `first` on.
template <size_t kHeads, size_t kPositions>
void score_tile(const HeadsState& s, const AttendBlock& b, size_t head, size_t first) {
    __m512 sums[kTileSums];
    unrolled<kTileSums>([&](size_t i)
                            __attribute__((always_inline)) { sums[i] = _mm512_setzero_ps(); });
    const float* latent = latent_floats(s, head);
    const float* rope = rope_floats(s, head);
    add_products<kHeads, kPositions>(latent, b.ckv + first * s.latent, s.latent, sums);
    add_products<kHeads, kPositions>(rope, b.kr + first * s.rope, s.rope, sums);
    alignas(64) float scores[kTileSums];
    _mm512_store_ps(scores, _mm512_mul_ps(sums_of_lanes(sums), _mm512_set1_ps(b.scale)));
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
            const size_t i = h * kPositions + p;
            s.scores[(head + h) * kAttentionBlock + first + p] = scores[i % 4 * 4 + i / 4];
        });
    });
}

// o = o · alpha, then o += p · values, positions ascending; kBlocks times 32 columns, or the last
// `left` ones. p [head][kAttentionBlock] as floats.
template <size_t kHeads, size_t kBlocks, bool kIsWhole>
void accumulate_columns(const HeadsState& s,
                        const AttendBlock& b,
                        const float* p,
                        size_t head,
                        size_t column,
                        size_t left) {
    using Lanes = SixteenWords;
    __m512 even[kHeads][kBlocks];
    __m512 odd[kHeads][kBlocks];
    float* const o = s.o + head * s.o_stride + column;
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        const __m512 alpha = _mm512_set1_ps(s.alpha[head + h]);
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            const float* from = o + h * s.o_stride + 32 * c;
            const __m512 low = _mm512_mul_ps(_mm512_loadu_ps(from), alpha);
            const __m512 high = _mm512_mul_ps(_mm512_loadu_ps(from + 16), alpha);
            even[h][c] = _mm512_permutex2var_ps(low, even_columns(), high);
            odd[h][c] = _mm512_permutex2var_ps(low, odd_columns(), high);
        });
    });
    const Bf16* row = b.summed() + column;
    const auto mask = static_cast<__mmask32>((uint64_t{1} << left) - 1);
    p += head * kAttentionBlock;
    for (size_t position = 0; position < b.num_positions; ++position, row += s.latent) {
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            const __m512i words = kIsWhole ? _mm512_loadu_si512(row + 32 * c)
                                           : _mm512_maskz_loadu_epi16(mask, row + 32 * c);
            const __m512 v_even = Lanes::low_half(words);
            const __m512 v_odd = Lanes::high_half(words);
            unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
                const __m512 weight = _mm512_set1_ps(p[h * kAttentionBlock + position]);
                even[h][c] = _mm512_fmadd_ps(weight, v_even, even[h][c]);
                odd[h][c] = _mm512_fmadd_ps(weight, v_odd, odd[h][c]);
            });
        });
    }
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            float* to = o + h * s.o_stride + 32 * c;
            _mm512_storeu_ps(to, _mm512_permutex2var_ps(even[h][c], low_columns(), odd[h][c]));
            _mm512_storeu_ps(to + 16,
                             _mm512_permutex2var_ps(even[h][c], high_columns(), odd[h][c]));
        });
    });
}

// What ops/cpu/attend_floats.h asks for.
struct AttendAvx512 {
    static constexpr size_t kHeadsMost = 8;
    static constexpr size_t kBlockColumns = 32;
    template <size_t kHeads>
    static constexpr size_t kPositions = kTilePositions<kHeads>;
    // Few heads have too few sums for the products to follow each other closely.
    template <size_t kHeads>
    static constexpr size_t kBlocks = kHeads >= 8   ? 1
                                      : kHeads == 4 ? 2
                                                    : 4;

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
