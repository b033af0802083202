// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention of one or two heads over a block of a quantised cache as it is (QuantisedBlock): what
// is multiplied becomes floats of bf16 values in registers, with the bits of expand_key_pairs() and
// expand_rows(). A block of 128 int8 values takes a Zen 3 2.4 instead of 3.3 us. What is left is
// mostly the rounding: four heads gained a tenth at most, which is not worth tiles of their own,
// and eight lost one.
//
// Included by ops/cpu/avx2/kernels_avx2.cc only.

#include <immintrin.h>

#include <algorithm>
#include <cstddef>

#include "ops/cpu/attend_block.h"
#include "ops/cpu/attend_float_block.h"
#include "ops/cpu/attend_floats.h"
#include "ops/cpu/avx2/attention_avx2.h"
#include "ops/cpu/avx2/softmax_avx2.h"
#include "ops/cpu/avx2/words_avx2.h"
#include "ops/cpu/bf16_split.h"
#include "ops/cpu/expand_key_pairs.h"
#include "ops/cpu/expand_rows.h"
#include "ops/cpu/key_pair_scores.h"
#include "ops/cpu/line_fetches.h"
#include "ops/cpu/quantised_rows.h"
#include "ops/cpu/quantised_values.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"
#include "ops/format/kv_dtype.h"

namespace afd::ops::cpu {
namespace {

constexpr QuantisedHeadsMax kQuantisedHeadsMax = {.int8 = 2, .fp8 = 2};

// What KeyPairTile asks of keys.
template <typename Values>
struct QuantisedPairs {
    const std::byte* at;
    const float* factors;

    template <bool kIsOdd>
    [[gnu::always_inline]] __m256 half(size_t step, size_t r) const {
        const std::byte* const q = at + step + 2 * r * EightWords::kWidth;
        const __m256 factor = EightWords::load(factors + r * EightWords::kWidth);
        return rounded_number<EightWords>(
            EightWords::multiply(Values::template half<EightWords, kIsOdd>(q), factor));
    }
};

// What accumulate_columns() asks of values.
template <typename Values>
struct QuantisedValueRows {
    const std::byte* row;
    size_t row_bytes;
    const float* factor;

    template <bool>
    [[gnu::always_inline]] Columns load(size_t column, size_t) const {
        Columns values;
        Values::template load<EightWords>(row + column, values.even, values.odd);
        const __m256 scale = EightWords::broadcast(*factor);
        return {rounded_number<EightWords>(EightWords::multiply(values.even, scale)),
                rounded_number<EightWords>(EightWords::multiply(values.odd, scale))};
    }
    [[gnu::always_inline]] void next() {
        row += row_bytes;
        ++factor;
    }
};

// What the values of each position are multiplied by; 0 behind the positions.
template <typename Values>
struct BlockFactors {
    alignas(32) float keys[kAttentionBlock] = {};
    alignas(32) float values[kAttentionBlock] = {};

    // Whether all scales are ordinary.
    bool fill(const QuantisedBlock& b) {
        constexpr float kFactor = Values::template kFactor<EightWords>;
        bool are_ordinary = true;
        for (size_t i = 0; i < b.num_positions; ++i) {
            const float key = b.keys.scale(0, i);
            const float value = b.values.scale(i, 0);
            are_ordinary &= is_ordinary<EightWords, Values>(key);
            are_ordinary &= is_ordinary<EightWords, Values>(value);
            keys[i] = key * kFactor;
            values[i] = value * kFactor;
        }
        return are_ordinary;
    }
};

// Behind the positions a score is anything.
template <typename Values, size_t kHeads>
void score_quantised(const HeadsState& s,
                     const QuantisedBlock& b,
                     const float* factors,
                     ScoreRows& scores) {
    constexpr size_t kWidth = EightWords::kWidth;
    constexpr size_t kRegistersMost = 8 / kHeads;
    const size_t num_registers = (b.num_positions + kWidth - 1) / kWidth;
    LineFetches next(CacheLevel::kFirst,
                     b.keys.next.data(),
                     b.keys.next.size(),
                     kHeads * s.latent / kFetchSteps);
    for_each_part<kRegistersMost>(0, num_registers, [&]<size_t kRegisters>(size_t first) {
        using Keys = QuantisedPairs<Values>;
        const KeyPairTile<AttendAvx2, Keys, kHeads, kRegisters> tile{
            query_floats(s),
            {b.keys.values + 2 * first * kWidth, factors + first * kWidth},
            s.latent / 2};
        tile.run(
            b.scale, scores.row(0) + first * kWidth, [&]() __attribute__((always_inline)) {
                next.next();
            });
    });
}

template <typename Values, size_t kHeads>
void sum_quantised(const HeadsState& s,
                   const QuantisedBlock& b,
                   const float* factors,
                   const ScoreRows& p) {
    constexpr size_t kColumns = AttendAvx2::kBlockColumns;
    constexpr size_t kBlocks = AttendAvx2::kBlocks<kHeads>;
    const size_t num_fetches = s.latent / kColumns * (kAttentionBlock / kFetchSteps) / kBlocks;
    LineFetches next(CacheLevel::kFirst, b.values.next.data(), b.values.next.size(), num_fetches);
    const AttendBlock block{.num_positions = b.num_positions};
    SumTile tile{s, block, p, next, 0, 0, b.num_positions};
    const auto add = [&]<size_t kCount>() {
        accumulate_columns<kHeads, kCount, true>(
            tile,
            QuantisedValueRows<Values>{b.values.values + tile.column, b.values.row_bytes, factors});
        tile.column += kCount * kColumns;
    };
    while (tile.column + kBlocks * kColumns <= s.latent) add.template operator()<kBlocks>();
    while (tile.column < s.latent) add.template operator()<1>();
}

// Keys and values as bf16 first.
template <typename Values>
void attend_expanded(const QuantisedBlock& b, const HeadsState& s) {
    expand_key_pairs<EightWords, Values>(b.keys, b.keys_room);
    expand_rows<EightWords, Values>(b.values, b.values_room);
    attend_float_block<AttendAvx2>({.ckv = b.keys_room,
                                    .values = b.values_room,
                                    .num_positions = b.num_positions,
                                    .scale = b.scale,
                                    .keys_in_pairs = true},
                                   s);
}

template <typename Values>
void attend_quantised_values(const QuantisedBlock& b, const HeadsState& s) {
    BlockFactors<Values> factors;
    if (!factors.fill(b)) return attend_expanded<Values>(b, s);
    with_rows<2>(s.num_heads, [&]<size_t kHeads>() {
        ScoreRows scores;
        ScoreRows p;
        score_quantised<Values, kHeads>(s, b, factors.keys, scores);
        softmax_avx2(s, {.num_positions = b.num_positions}, scores, p);
        sum_quantised<Values, kHeads>(s, b, factors.values, p);
    });
}

inline void attend_quantised(const QuantisedBlock& b, const HeadsState& s) {
    if (b.dtype == KvDtype::kInt8) return attend_quantised_values<Int8Values>(b, s);
    attend_quantised_values<E4m3Values>(b, s);
}

}  // namespace
}  // namespace afd::ops::cpu
