// SPDX-License-Identifier: Apache-2.0
#pragma once

// QuantisedKeyPairs to bf16, with the bits of rows (ops/cpu/quantised_values.h says what Lanes and
// Values are). Included by kernels_*.cc only.

#include <cstddef>

#include "ops/cpu/line_fetches.h"
#include "ops/cpu/quantised_rows.h"
#include "ops/cpu/quantised_values.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"
#include "ops/format/gqa_cache.h"
#include "ops/format/kv_dtype.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

template <typename Values>
void expand_pairs_plain(const QuantisedKeyPairs& keys, size_t tile, Bf16* x) {
    for (size_t pair = 0; pair < kv_tile_values(keys.count, tile) / 2; ++pair) {
        for (size_t position = 0; position < kAttentionBlock; ++position) {
            const size_t at = key_pair_place(position, tile * kKvTile + 2 * pair);
            Values::expand(keys.values + at, keys.scale(tile, position), 2, x + at);
        }
    }
}

// A tile of all positions. Those that nobody has written may have any scale, from a request before;
// then all take the plain way, with the same bits.
template <typename Lanes, typename Values>
void expand_pairs(const QuantisedKeyPairs& keys, size_t tile, Bf16* x, LineFetches& next) {
    alignas(64) float factors[kKeyPairStep];
    bool are_ordinary = true;
    for (size_t position = 0; position < kAttentionBlock; ++position) {
        const float scale = keys.scale(tile, position);
        are_ordinary &= is_ordinary<Lanes, Values>(scale);
        const float factor = scale * Values::template kFactor<Lanes>;
        if constexpr (Lanes::kIsEvenAndOdd) {
            factors[position] = factor;
        } else {
            factors[2 * position] = factor;
            factors[2 * position + 1] = factor;
        }
    }
    if (!are_ordinary) return expand_pairs_plain<Values>(keys, tile, x);
    const size_t begin = tile * kKvTile / 2 * kKeyPairStep;
    const size_t end = begin + kv_tile_values(keys.count, tile) / 2 * kKeyPairStep;
    for (size_t at = begin; at < end; at += kKeyPairStep) {
        next.next();
        unrolled<kKeyPairStep / (2 * Lanes::kWidth)>([&](size_t k) __attribute__((always_inline)) {
            const size_t first = k * 2 * Lanes::kWidth;
            typename Lanes::Floats a;
            typename Lanes::Floats b;
            Values::template load<Lanes>(keys.values + at + first, a, b);
            constexpr size_t kOther = Lanes::kIsEvenAndOdd ? 0 : Lanes::kWidth;
            const float* const of = factors + (Lanes::kIsEvenAndOdd ? first / 2 : first);
            a = Lanes::multiply(a, Lanes::load(of));
            b = Lanes::multiply(b, Lanes::load(of + kOther));
            Lanes::store_rounded(x + at + first, a, b);
        });
    }
}

template <typename Lanes, typename Values>
void expand_key_pairs(const QuantisedKeyPairs& keys, Bf16* x) {
    LineFetches next(CacheLevel::kFirst, keys.next.data(), keys.next.size(), keys.count / 2);
    for (size_t tile = 0; tile < num_kv_tiles(keys.count); ++tile) {
        expand_pairs<Lanes, Values>(keys, tile, x, next);
    }
}

template <typename Values>
void expand_key_pairs_plain(const QuantisedKeyPairs& keys, Bf16* x) {
    for (size_t tile = 0; tile < num_kv_tiles(keys.count); ++tile) {
        expand_pairs_plain<Values>(keys, tile, x);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
