// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention of few heads over a block of a quantised cache as it is (QuantisedBlock): what is
// multiplied becomes bf16 in a register, once for all heads, with the bits of expand_key_pairs()
// and expand_rows(). With those, expansion, memory and products followed each other: one head of
// 128 int8 values took a Zen 5 1.05 us for a block from memory, and takes 0.66.
//
// Included by ops/cpu/avx512_bf16/kernels_avx512_bf16.cc only.

#include <immintrin.h>

#include <algorithm>
#include <cstddef>

#include "ops/cpu/attend_block.h"
#include "ops/cpu/avx512_bf16/attention_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/key_pairs_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/rounded_words_avx512_bf16.h"
#include "ops/cpu/expand_key_pairs.h"
#include "ops/cpu/expand_rows.h"
#include "ops/cpu/line_fetches.h"
#include "ops/cpu/quantised_rows.h"
#include "ops/cpu/quantised_values.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/gqa_cache.h"
#include "ops/format/kv_dtype.h"

namespace afd::ops::cpu {
namespace {

// On a Zen 5, 8 heads of 64 values took 1.1 times as long with fp8, and 0.88 times with 128 values
// and int8.
constexpr QuantisedHeadsMax kQuantisedHeadsMax = {.int8 = 8, .fp8 = 4};

// 32 values that follow each other, the first half of them times `first`, the others `second`.
template <typename Values>
[[gnu::always_inline]] inline __m512i scaled_values(const std::byte* q,
                                                    __m512 first,
                                                    __m512 second) {
    __m512 a;
    __m512 b;
    Values::template load<RoundedWords>(q, a, b);
    return RoundedWords::rounded(_mm512_mul_ps(a, first), _mm512_mul_ps(b, second));
}

// What score_pair_tiles() asks of keys.
template <typename Values>
class QuantisedPairs {
  public:
    // factors: [kAttentionBlock][2]
    QuantisedPairs(const std::byte* keys, const float* factors, const LineFetches& fetches)
        : keys_(keys), factors_(factors), fetches_(fetches) {}

    template <size_t kTiles>
    struct Columns {
        const std::byte* at;
        __m512 factors[2 * kTiles];

        // Of positions without a score anything: no score takes more than its own lane.
        [[gnu::always_inline]] __m512i load(size_t tile, __mmask16) const {
            return scaled_values<Values>(
                at + tile * kLineElements, factors[2 * tile], factors[2 * tile + 1]);
        }
        void next() { at += kKeyPairStep; }
    };
    template <size_t kTiles>
    [[gnu::always_inline]] Columns<kTiles> from(size_t first) const {
        Columns<kTiles> columns;
        columns.at = keys_ + 2 * first;
        unrolled<2 * kTiles>([&](size_t i) __attribute__((always_inline)) {
            columns.factors[i] = _mm512_load_ps(factors_ + 2 * first + i * kHeadLanes);
        });
        return columns;
    }

    template <size_t kTiles>
    [[gnu::always_inline]] void fetch() {
        fetches_.next();
    }

  private:
    const std::byte* keys_;
    const float* factors_;
    LineFetches fetches_;
};

// What accumulate() asks of values. REQUIRES: whole columns of 32.
template <typename Values>
class QuantisedValueRows {
  public:
    // factors: [kAttentionBlock]
    QuantisedValueRows(const QuantisedRows& rows, const float* factors)
        : rows_(rows), factors_(factors) {}

    struct Pair {
        const std::byte* row;
        size_t row_bytes;
        const float* factors;

        template <bool kIsWhole>
        [[gnu::always_inline]] __m512i load(size_t which, size_t column, size_t) const {
            const __m512 factor = _mm512_set1_ps(factors[which]);
            return scaled_values<Values>(row + which * row_bytes + column, factor, factor);
        }
        void next() {
            row += 2 * row_bytes;
            factors += 2;
        }
    };
    Pair from(size_t column) const { return {rows_.values + column, rows_.row_bytes, factors_}; }

  private:
    const QuantisedRows& rows_;
    const float* factors_;
};

// What the values of each position are multiplied by.
template <typename Values>
struct BlockFactors {
    alignas(64) float keys[2 * kAttentionBlock] = {};
    alignas(64) float values[kAttentionBlock] = {};

    // Whether all scales are ordinary. Behind the positions there may be any scales of keys, of
    // which some become factors of scores that nobody reads.
    bool fill(const QuantisedBlock& b) {
        for (size_t i = 0; i < b.num_positions; ++i) values[i] = b.values.scale(i, 0);
        bool are_ordinary = true;
        for (size_t first = 0; first < b.num_positions; first += kHeadLanes) {
            const size_t count = std::min(b.num_positions - first, kHeadLanes);
            const auto mask = static_cast<__mmask16>((1u << count) - 1);
            const __m512 key = _mm512_loadu_ps(b.keys.scales + first * sizeof(float));
            const __m512 value = _mm512_load_ps(values + first);
            are_ordinary &= (mask & ~(ordinary(key) & ordinary(value))) == 0;
            const __m512 factor = _mm512_mul_ps(key, _mm512_set1_ps(Scales::kFactor));
            const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
            const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
            _mm512_store_ps(keys + 2 * first, _mm512_permutexvar_ps(low, factor));
            _mm512_store_ps(keys + 2 * first + kHeadLanes, _mm512_permutexvar_ps(high, factor));
            _mm512_store_ps(values + first, _mm512_mul_ps(value, _mm512_set1_ps(Scales::kFactor)));
        }
        return are_ordinary;
    }

  private:
    using Scales = OrdinaryScales<RoundedWords, Values>;

    static __mmask16 ordinary(__m512 scale) {
        const __mmask16 is_zero = _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_EQ_OQ);
        const __mmask16 is_large =
            _mm512_cmp_ps_mask(scale, _mm512_set1_ps(Scales::kLeast), _CMP_GE_OQ);
        const __mmask16 is_small =
            _mm512_cmp_ps_mask(scale, _mm512_set1_ps(Scales::kMost), _CMP_LT_OQ);
        return is_zero | (is_large & is_small);
    }
};

// Keys and values as bf16 first.
template <typename Values>
void attend_expanded(const QuantisedBlock& b, const HeadsState& s) {
    expand_key_pairs<RoundedWords, Values>(b.keys, b.keys_room);
    expand_rows<RoundedWords, Values>(b.values, b.values_room);
    attend_key_pairs({.ckv = b.keys_room,
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
    const AttendBlock block{.num_positions = b.num_positions, .scale = b.scale};
    const size_t num_passes = kAttentionBlock / (pair_tiles(s.num_heads) * kHeadLanes);
    const LineFetches fetches(
        CacheLevel::kFirst, b.keys.next.data(), b.keys.next.size(), num_passes * s.latent / 2);
    score_pair_heads(s, block, 0, QuantisedPairs<Values>(b.keys.values, factors.keys, fetches));
    softmax_of_positions(s, block, {});
    accumulate<KeysArePairs>(
        s, block, QuantisedValueRows<Values>(b.values, factors.values), range_of(b.values.next));
}

void attend_quantised(const QuantisedBlock& b, const HeadsState& s) {
    if (b.dtype == KvDtype::kInt8) return attend_quantised_values<Int8Values>(b, s);
    attend_quantised_values<E4m3Values>(b, s);
}

}  // namespace
}  // namespace afd::ops::cpu
