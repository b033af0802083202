// SPDX-License-Identifier: Apache-2.0

// Numeric class avx512-bf16: vdpbf16ps, 32 products a step. Compiled with -mavx512f ...
// -mavx512bf16.

#include <immintrin.h>

#include "ops/cpu/activation_kernels.h"
#include "ops/cpu/int4_avx512.h"
#include "ops/cpu/int8_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/quantise_avx512.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/tile_avx512.h"

namespace afd::ops::cpu {
namespace {

constexpr size_t kScoreHeads = 4;
constexpr size_t kScorePositions = 4;

// Elements [first, min(first + 32, count)) of a row, zero beyond.
inline __m512i load_group(const Bf16* row, size_t first, size_t count) {
    if (first + 32 <= count) return _mm512_loadu_si512(row + first);
    const auto mask = static_cast<__mmask32>((uint32_t{1} << (count - first)) - 1);
    return _mm512_maskz_loadu_epi16(mask, row + first);
}

using ScoreSums = __m512[kScoreHeads * kScorePositions];

inline void dot_rows(const Bf16* const* queries,
                     const Bf16* const* keys,
                     size_t count,
                     ScoreSums& sums) {
    for (size_t i = 0; i < count; i += 32) {
        __m512i key[kScorePositions];
        for (size_t p = 0; p < kScorePositions; ++p) key[p] = load_group(keys[p], i, count);
        for (size_t h = 0; h < kScoreHeads; ++h) {
            const __m512i query = load_group(queries[h], i, count);
            for (size_t p = 0; p < kScorePositions; ++p) {
                __m512& sum = sums[h * kScorePositions + p];
                sum = dot_pairs(sum, query, key[p]);
            }
        }
    }
}

// Sum j of the result is the sum of the lanes of v[j], by halves: ((0+8)+(4+12)) + ...
inline __m512 sum_lanes_of_16(const ScoreSums& v) {
    __m512 by8[8];
    for (size_t i = 0; i < 8; ++i) {
        const __m512 a = v[2 * i];
        const __m512 b = v[2 * i + 1];
        by8[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    }
    __m512 by4[4];
    for (size_t i = 0; i < 4; ++i) {
        const __m512 a = by8[2 * i];
        const __m512 b = by8[2 * i + 1];
        by4[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    __m512 by2[2];
    for (size_t i = 0; i < 2; ++i) {
        const __m512d a = _mm512_castps_pd(by4[2 * i]);
        const __m512d b = _mm512_castps_pd(by4[2 * i + 1]);
        by2[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                               _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    const __m512 sums = _mm512_add_ps(_mm512_shuffle_ps(by2[0], by2[1], 0x88),
                                      _mm512_shuffle_ps(by2[0], by2[1], 0xdd));
    // Sum j now stands at 4 · (j mod 4) + j / 4.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_ps(order, sums);
}

// Tiles at the edges repeat their last head or position and drop the surplus: nothing beyond
// num_positions is read.
void scores(const ScoreArguments& a) {
    for (size_t position = 0; position < a.num_positions; position += kScorePositions) {
        const size_t last_position = a.num_positions - 1;
        const Bf16* ckv[kScorePositions];
        const Bf16* kr[kScorePositions];
        for (size_t p = 0; p < kScorePositions; ++p) {
            const size_t at = position + p < last_position ? position + p : last_position;
            ckv[p] = a.ckv + at * a.latent;
            kr[p] = a.kr + at * a.rope;
        }
        for (size_t head = 0; head < a.num_heads; head += kScoreHeads) {
            const Bf16* query[kScoreHeads];
            const Bf16* query_rope[kScoreHeads];
            for (size_t h = 0; h < kScoreHeads; ++h) {
                const size_t at = head + h < a.num_heads ? head + h : a.num_heads - 1;
                query[h] = a.query + at * a.query_stride;
                query_rope[h] = a.query_rope + at * a.query_rope_stride;
            }
            ScoreSums sums;
            for (auto& sum : sums) sum = _mm512_setzero_ps();
            dot_rows(query, ckv, a.latent, sums);
            dot_rows(query_rope, kr, a.rope, sums);
            float tile_scores[kScoreHeads * kScorePositions];
            _mm512_storeu_ps(tile_scores,
                             _mm512_mul_ps(sum_lanes_of_16(sums), _mm512_set1_ps(a.scale)));
            for (size_t h = 0; h < kScoreHeads && head + h < a.num_heads; ++h) {
                for (size_t p = 0; p < kScorePositions && position + p < a.num_positions; ++p) {
                    a.scores[(head + h) * kAttentionBlock + position + p] =
                        tile_scores[h * kScorePositions + p];
                }
            }
        }
    }
}

// 32 columns of kHeads heads. Interleaving two rows by 16-bit unpacks leaves the columns in the
// order low: 0-3, 8-11, 16-19, 24-27, high: the others; `o` keeps it and finish() undoes it.
template <size_t kHeads>
void accumulate_columns(const AccumulateArguments& a, size_t head, size_t column) {
    __m512 low[kHeads];
    __m512 high[kHeads];
    for (size_t h = 0; h < kHeads; ++h) {
        const float* o = a.o + (head + h) * a.o_stride + column;
        const __m512 alpha = _mm512_set1_ps(a.alpha[head + h]);
        low[h] = _mm512_mul_ps(_mm512_loadu_ps(o), alpha);
        high[h] = _mm512_mul_ps(_mm512_loadu_ps(o + 16), alpha);
    }
    for (size_t position = 0; position < a.num_positions; position += 2) {
        const Bf16* row = a.ckv + position * a.latent;
        const __m512i even = load_group(row, column, a.latent);
        const __m512i odd = position + 1 < a.num_positions
                                ? load_group(row + a.latent, column, a.latent)
                                : _mm512_setzero_si512();
        const __m512i pairs_low = _mm512_unpacklo_epi16(even, odd);
        const __m512i pairs_high = _mm512_unpackhi_epi16(even, odd);
        for (size_t h = 0; h < kHeads; ++h) {
            const __m512i p = broadcast_pair(a.p + (head + h) * kAttentionBlock + position);
            low[h] = dot_pairs(low[h], pairs_low, p);
            high[h] = dot_pairs(high[h], pairs_high, p);
        }
    }
    for (size_t h = 0; h < kHeads; ++h) {
        float* o = a.o + (head + h) * a.o_stride + column;
        _mm512_storeu_ps(o, low[h]);
        _mm512_storeu_ps(o + 16, high[h]);
    }
}

void accumulate(const AccumulateArguments& a) {
    for (size_t column = 0; column < a.latent; column += 32) {
        size_t head = 0;
        for (; head + 8 <= a.num_heads; head += 8) accumulate_columns<8>(a, head, column);
        for (; head + 4 <= a.num_heads; head += 4) accumulate_columns<4>(a, head, column);
        for (; head < a.num_heads; ++head) accumulate_columns<1>(a, head, column);
    }
}

void finish(const float* o, float sum, size_t latent_size, Bf16* latent) {
    for (size_t column = 0; column < latent_size; column += 32) {
        const size_t count = latent_size - column < 32 ? latent_size - column : 32;
        for (size_t c = 0; c < count; ++c) {
            // Column c: its 128-bit lane c / 8, in the low half for c mod 8 < 4.
            const size_t place = (c / 8) * 4 + c % 4 + (c % 8 < 4 ? 0 : 16);
            latent[column + c] = from_float(o[column + place] / sum);
        }
    }
}

}  // namespace

const Kernels& avx512_bf16_kernels() {
    static constexpr Kernels kTable{tile,
                                    sum_int8,
                                    int8_tile,
                                    int4_tile,
                                    unpack_int4,
                                    scale_row,
                                    round_row,
                                    swiglu_row,
                                    scores,
                                    softmax_step,
                                    accumulate,
                                    finish,
                                    quantise_rows<Bf16, MultiplyByFixedPoint>,
                                    quantise_rows<Fp16, MultiplyByFixedPoint>,
                                    quantise_rows<float, MultiplyByFixedPoint>,
                                    kActivateRows};
    return kTable;
}

}  // namespace afd::ops::cpu
