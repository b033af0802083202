// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scores, softmax, weighted sum and its division for AVX-512 BF16 (ops/mla_attention.h says what
// they compute). Included by ops/cpu/kernels_avx512.cc only.

#include <immintrin.h>

#include <cstring>
#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/latent_cache.h"

namespace afd::ops::cpu {
namespace {

inline __m512 dot_pairs_512(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

inline __m512i broadcast_pair_of(const Bf16* x) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof pair);
    return _mm512_set1_epi32(pair);
}

// The first `count` elements, fewer than 32, of a row, zero beyond.
inline __m512i load_part(const Bf16* row, size_t count) {
    const auto mask = static_cast<__mmask32>((uint32_t{1} << count) - 1);
    return _mm512_maskz_loadu_epi16(mask, row);
}

// Elements [first, min(first + 32, count)) of a row, zero beyond.
inline __m512i load_group(const Bf16* row, size_t first, size_t count) {
    if (first + 32 <= count) return _mm512_loadu_si512(row + first);
    return load_part(row + first, count - first);
}

// Fetches a row that the next block will ask for.
inline void prefetch_row(const Bf16* row, size_t count) {
    for (size_t i = 0; i < count; i += 32) {
        _mm_prefetch(reinterpret_cast<const char*>(row + i), _MM_HINT_T1);
    }
}

// A score tile: up to 8 heads by 32 positions, 16 of them in a register. The keys stand in it as
// columns: one register holds a pair of elements of 16 positions.
constexpr size_t kScoreColumns = 2;
constexpr size_t kScorePositions = 16 * kScoreColumns;
// Pairs of elements that are turned at a time: 16 KiB.
constexpr size_t kTurnedPairs = 128;
using TurnedKeys = __m512i[kTurnedPairs][kScoreColumns];

// 32 elements of 16 rows: turned[i][column] holds pair i of every row.
inline void turn_16(const Bf16* const* rows, size_t column, __m512i (*turned)[kScoreColumns]) {
    const auto part = [](const Bf16* row, size_t quarter) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 8 * quarter));
    };
    for (size_t quarter = 0; quarter < 4; ++quarter) {
        // Rows r, r + 4, r + 8, r + 12 side by side; then 4 x 4 pairs are turned in each quarter.
        __m512i by_row[4];
        for (size_t r = 0; r < 4; ++r) {
            __m512i v = _mm512_maskz_broadcast_i32x4(0x000f, part(rows[r], quarter));
            v = _mm512_mask_broadcast_i32x4(v, 0x00f0, part(rows[r + 4], quarter));
            v = _mm512_mask_broadcast_i32x4(v, 0x0f00, part(rows[r + 8], quarter));
            by_row[r] = _mm512_mask_broadcast_i32x4(v, 0xf000, part(rows[r + 12], quarter));
        }
        const __m512i low01 = _mm512_unpacklo_epi32(by_row[0], by_row[1]);
        const __m512i high01 = _mm512_unpackhi_epi32(by_row[0], by_row[1]);
        const __m512i low23 = _mm512_unpacklo_epi32(by_row[2], by_row[3]);
        const __m512i high23 = _mm512_unpackhi_epi32(by_row[2], by_row[3]);
        turned[4 * quarter][column] = _mm512_unpacklo_epi64(low01, low23);
        turned[4 * quarter + 1][column] = _mm512_unpackhi_epi64(low01, low23);
        turned[4 * quarter + 2][column] = _mm512_unpacklo_epi64(high01, high23);
        turned[4 * quarter + 3][column] = _mm512_unpackhi_epi64(high01, high23);
    }
}

// Elements [first, first + count) of the rows of kScorePositions keys; zero beyond `count`.
inline void turn_keys(const Bf16* const* keys, size_t first, size_t count, TurnedKeys& turned) {
    alignas(64) Bf16 copies[16][32];
    for (size_t column = 0; column < kScoreColumns; ++column) {
        for (size_t i = 0; i < count; i += 32) {
            const Bf16* rows[16];
            for (size_t r = 0; r < 16; ++r) {
                rows[r] = keys[16 * column + r] + first + i;
                if (count - i >= 32) continue;
                _mm512_store_si512(copies[r], load_part(rows[r], count - i));
                rows[r] = copies[r];
            }
            turn_16(rows, column, turned + i / 2);
        }
    }
}

// sums[head][position] += the products of `count` elements, pairs ascending, in one chain.
template <size_t kHeads>
void add_scores(
    const Bf16* query, size_t stride, size_t count, const TurnedKeys& keys, float* sums) {
    __m512 sum[kHeads][kScoreColumns];
    for (size_t h = 0; h < kHeads; ++h) {
        for (size_t c = 0; c < kScoreColumns; ++c) {
            sum[h][c] = _mm512_load_ps(sums + h * kScorePositions + 16 * c);
        }
    }
    const auto add_pair = [&](size_t pair, auto&& query_pair) __attribute__((always_inline)) {
        for (size_t h = 0; h < kHeads; ++h) {
            const __m512i value = query_pair(query + h * stride + 2 * pair);
            for (size_t c = 0; c < kScoreColumns; ++c) {
                sum[h][c] = dot_pairs_512(sum[h][c], keys[pair][c], value);
            }
        }
    };
    for (size_t pair = 0; pair < count / 2; ++pair) add_pair(pair, broadcast_pair_of);
    if (count % 2 != 0) {
        add_pair(count / 2, [](const Bf16* x) { return _mm512_set1_epi32(x->bits); });
    }
    for (size_t h = 0; h < kHeads; ++h) {
        for (size_t c = 0; c < kScoreColumns; ++c) {
            _mm512_store_ps(sums + h * kScorePositions + 16 * c, sum[h][c]);
        }
    }
}

// The part of the scores that one of the two parts of the keys gives, for all heads.
inline void add_part(const Bf16* query,
                     size_t stride,
                     const Bf16* const* keys,
                     size_t count,
                     size_t num_heads,
                     float* sums) {
    TurnedKeys turned;
    for (size_t first = 0; first < count; first += 2 * kTurnedPairs) {
        const size_t left = count - first;
        const size_t taken = left < 2 * kTurnedPairs ? left : 2 * kTurnedPairs;
        turn_keys(keys, first, taken, turned);
        size_t head = 0;
        for (; head + 8 <= num_heads; head += 8) {
            add_scores<8>(query + head * stride + first,
                          stride,
                          taken,
                          turned,
                          sums + head * kScorePositions);
        }
        for (; head < num_heads; ++head) {
            add_scores<1>(query + head * stride + first,
                          stride,
                          taken,
                          turned,
                          sums + head * kScorePositions);
        }
    }
}

// Tiles at the edge repeat their last position and drop the surplus: nothing beyond num_positions
// is read.
void scores(const ScoreArguments& a) {
    alignas(64) float sums[kScoreHeadsMax * kScorePositions];
    const __m512 scale = _mm512_set1_ps(a.scale);
    for (size_t position = 0; position < a.num_positions; position += kScorePositions) {
        const size_t last_position = a.num_positions - 1;
        const Bf16* ckv[kScorePositions];
        const Bf16* kr[kScorePositions];
        for (size_t p = 0; p < kScorePositions; ++p) {
            const size_t at = position + p < last_position ? position + p : last_position;
            ckv[p] = a.ckv + at * a.latent;
            kr[p] = a.kr + at * a.rope;
            if (a.next_ckv != nullptr) {
                prefetch_row(a.next_ckv + at * a.latent, a.latent);
                prefetch_row(a.next_kr + at * a.rope, a.rope);
            }
        }
        for (size_t i = 0; i < a.num_heads * kScorePositions; i += 16) {
            _mm512_store_ps(sums + i, _mm512_setzero_ps());
        }
        add_part(a.query, a.query_stride, ckv, a.latent, a.num_heads, sums);
        add_part(a.query_rope, a.query_rope_stride, kr, a.rope, a.num_heads, sums);
        for (size_t h = 0; h < a.num_heads; ++h) {
            for (size_t c = 0; c < kScoreColumns; ++c) {
                const __m512 sum = _mm512_load_ps(sums + h * kScorePositions + 16 * c);
                _mm512_storeu_ps(a.scores + h * kAttentionBlock + position + 16 * c,
                                 _mm512_mul_ps(sum, scale));
            }
        }
    }
}

// exp() of ops/math.h, operation by operation.
inline __m512 exp_16(__m512 x) {
    const auto constant = [](float value) { return _mm512_set1_ps(value); };
    __m512 clamped = _mm512_max_ps(constant(-104.0f), x);
    clamped = _mm512_min_ps(constant(89.0f), clamped);
    const __m512 shifted = _mm512_add_ps(_mm512_mul_ps(clamped, constant(1.44269504088896341f)),
                                         constant(12582912.0f));
    const __m512 n = _mm512_sub_ps(shifted, constant(12582912.0f));
    __m512 r = _mm512_sub_ps(clamped, _mm512_mul_ps(n, constant(0.693359375f)));
    r = _mm512_sub_ps(r, _mm512_mul_ps(n, constant(-2.12194440054690583e-4f)));
    __m512 p = constant(1.0f / 5040.0f);
    for (const float term : {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f}) {
        p = _mm512_add_ps(_mm512_mul_ps(p, r), constant(term));
    }
    p = _mm512_add_ps(constant(1.0f), _mm512_add_ps(r, _mm512_mul_ps(_mm512_mul_ps(r, r), p)));
    const __m512i k = _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(0x4b400000));
    const __m512i half = _mm512_srai_epi32(k, 1);
    const __m512i bias = _mm512_set1_epi32(127);
    const __m512i scale_a = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
    const __m512i scale_b =
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(k, half), bias), 23);
    return _mm512_mul_ps(_mm512_mul_ps(p, _mm512_castsi512_ps(scale_a)),
                         _mm512_castsi512_ps(scale_b));
}

// from_float() of ops/bf16.h.
inline __m256i round_16(__m512 value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i lowest = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), lowest), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quiet));
}

// The largest lane, or the sum of the lanes by halves.
template <typename Combine512, typename Combine128>
inline float fold_lanes(__m512 v, const Combine512& combine, const Combine128& combine_4) {
    v = combine(v, _mm512_shuffle_f32x4(v, v, 0x4e));
    v = combine(v, _mm512_shuffle_f32x4(v, v, 0xb1));
    __m128 quarter = _mm512_castps512_ps128(v);
    quarter = combine_4(quarter, _mm_movehl_ps(quarter, quarter));
    quarter = combine_4(quarter, _mm_movehdup_ps(quarter));
    return _mm_cvtss_f32(quarter);
}

// A NaN score counts for no maximum; its p is NaN.
void softmax_block(
    float* scores, size_t num_positions, float* maximum, float* sum, float* alpha, Bf16* p) {
    constexpr size_t kGroups = kAttentionBlock / 16;
    __m512 score[kGroups];
    __m512 largest = _mm512_set1_ps(*maximum);
    const __m512 minus_infinity = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    for (size_t g = 0; g < kGroups; ++g) {
        const size_t left = num_positions > 16 * g ? num_positions - 16 * g : 0;
        const auto valid = static_cast<__mmask16>(left >= 16 ? 0xffff : (1u << left) - 1);
        score[g] = _mm512_mask_loadu_ps(minus_infinity, valid, scores + 16 * g);
        largest = _mm512_max_ps(score[g], largest);
    }
    const float top = fold_lanes(
        largest,
        [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); },
        [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
    __m512 total = _mm512_setzero_ps();
    for (size_t g = 0; g < kGroups; ++g) {
        const __m512 value = exp_16(_mm512_sub_ps(score[g], _mm512_set1_ps(top)));
        total = _mm512_add_ps(total, value);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16 * g), round_16(value));
    }
    const float block_sum = fold_lanes(
        total,
        [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); },
        [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
    *alpha = _mm512_cvtss_f32(exp_16(_mm512_set1_ps(*maximum - top)));
    *sum = *sum * *alpha + block_sum;
    *maximum = top;
}

// 32 columns of the rows of a block, two positions in a pair. Interleaving two rows by 16-bit
// unpacks leaves the columns in the order first register: 0-3, 8-11, 16-19, 24-27, second: the
// others; `o` keeps it and finish() undoes it.
using PairedColumns = __m512i[kAttentionBlock / 2][2];

inline void pair_columns(const AccumulateArguments& a, size_t column, PairedColumns& pairs) {
    for (size_t position = 0; position < a.num_positions; position += 2) {
        const Bf16* row = a.ckv + position * a.latent;
        const __m512i even = load_group(row, column, a.latent);
        const __m512i odd = position + 1 < a.num_positions
                                ? load_group(row + a.latent, column, a.latent)
                                : _mm512_setzero_si512();
        pairs[position / 2][0] = _mm512_unpacklo_epi16(even, odd);
        pairs[position / 2][1] = _mm512_unpackhi_epi16(even, odd);
    }
}

template <size_t kHeads>
void accumulate_columns(const AccumulateArguments& a,
                        size_t head,
                        size_t column,
                        const PairedColumns& pairs) {
    __m512 low[kHeads];
    __m512 high[kHeads];
    for (size_t h = 0; h < kHeads; ++h) {
        const float* o = a.o + (head + h) * a.o_stride + column;
        const __m512 alpha = _mm512_set1_ps(a.alpha[head + h]);
        low[h] = _mm512_mul_ps(_mm512_loadu_ps(o), alpha);
        high[h] = _mm512_mul_ps(_mm512_loadu_ps(o + 16), alpha);
    }
    for (size_t position = 0; position < a.num_positions; position += 2) {
        for (size_t h = 0; h < kHeads; ++h) {
            const __m512i p = broadcast_pair_of(a.p + (head + h) * kAttentionBlock + position);
            low[h] = dot_pairs_512(low[h], pairs[position / 2][0], p);
            high[h] = dot_pairs_512(high[h], pairs[position / 2][1], p);
        }
    }
    for (size_t h = 0; h < kHeads; ++h) {
        float* o = a.o + (head + h) * a.o_stride + column;
        _mm512_storeu_ps(o, low[h]);
        _mm512_storeu_ps(o + 16, high[h]);
    }
}

void accumulate(const AccumulateArguments& a) {
    PairedColumns pairs;
    for (size_t column = 0; column < a.latent; column += 32) {
        pair_columns(a, column, pairs);
        size_t head = 0;
        for (; head + 8 <= a.num_heads; head += 8) accumulate_columns<8>(a, head, column, pairs);
        for (; head < a.num_heads; ++head) accumulate_columns<1>(a, head, column, pairs);
    }
}

void finish(const float* o, float sum, size_t latent_size, Bf16* latent) {
    const __m512 divisor = _mm512_set1_ps(sum);
    // Column c of 32: its 128-bit lane c / 8, in the low half for c mod 8 < 4.
    const __m512i first_half =
        _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second_half = _mm512_add_epi32(first_half, _mm512_set1_epi32(8));
    for (size_t column = 0; column < latent_size; column += 32) {
        const __m512 low = _mm512_div_ps(_mm512_loadu_ps(o + column), divisor);
        const __m512 high = _mm512_div_ps(_mm512_loadu_ps(o + column + 16), divisor);
        const __m256i halves[2] = {round_16(_mm512_permutex2var_ps(low, first_half, high)),
                                   round_16(_mm512_permutex2var_ps(low, second_half, high))};
        const size_t count = latent_size - column < 32 ? latent_size - column : 32;
        std::memcpy(latent + column, halves, count * sizeof(Bf16));
    }
}

}  // namespace
}  // namespace afd::ops::cpu
