// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scores of keys that the cache holds in pairs (KeyOrder::kPairs, ops/format/gqa_cache.h), with
// registers whose lanes are positions: sixteen keys' pair is one load, where rows
// (ops/cpu/avx512_bf16/position_lanes_avx512_bf16.h) have to be turned first. Chains are the same,
// and so are the bits. Scores are [head][kAttentionBlock].
//
// Included by ops/cpu/avx512_bf16/attention_avx512_bf16.h only.

#include <immintrin.h>

#include <algorithm>

#include "ops/cpu/avx512_bf16/head_lanes_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/weight_fetch.h"
#include "ops/format/attention_batch.h"
#include "ops/format/gqa_cache.h"

namespace afd::ops::cpu {
namespace {

// Heads of one pass over the keys.
constexpr size_t kPairHeads = 8;

// kNearHeads read all lines in order and wait for nothing else, which is what the processor's own
// fetches are made for: lines a little ahead keep those going (4,096 positions, one head: 1.20
// instead of 1.46 µs a block, two heads: 1.37 instead of 1.71). With more heads lines come in
// another order, and what is read next is fetched evenly meanwhile.
constexpr size_t kNearBytes = 2048;

// Of `num_positions` keys, all pairs.
inline void fetch_key_pairs(const HeadsState& s, const Bf16* keys, size_t num_positions) {
    for (size_t pair = 0; pair < s.latent / 2; ++pair, keys += kKeyPairStep) {
        for (size_t i = 0; i < 2 * num_positions; i += kLineElements) {
            fetch_to_second_level(reinterpret_cast<uintptr_t>(keys + i));
        }
    }
}

// Pairs of keys in bf16. Of the lines from `fetched` on as many are fetched as are read, in order:
// the processor follows them with fetches of its own, as it does not where half of each 256 bytes
// is left out.
class Bf16KeyPairs {
  public:
    Bf16KeyPairs(const Bf16* keys, uintptr_t fetched) : keys_(keys), fetched_(fetched) {}

    // The pairs of sixteen times kTiles positions from `first` on, one pair after the other; those
    // that are not in a tile's mask are 0.
    template <size_t kTiles>
    struct Columns {
        const Bf16* at;

        [[gnu::always_inline]] __m512i load(size_t tile, __mmask16 mask) const {
            return _mm512_maskz_loadu_epi32(mask, at + tile * kLineElements);
        }
        void next() { at += kKeyPairStep; }
    };
    template <size_t kTiles>
    Columns<kTiles> from(size_t first) const {
        return {keys_ + 2 * first};
    }

    // In front of each pair of a Columns.
    template <size_t kTiles>
    [[gnu::always_inline]] void fetch() {
        unrolled<kTiles>([&](size_t t) __attribute__((always_inline)) {
            fetch_to_first_level(fetched_ + t * kLineBytes);
        });
        fetched_ += kTiles * kLineBytes;
    }

  private:
    const Bf16* keys_;  // Pair 0 of the block's first position.
    uintptr_t fetched_;
};

// Scores of kHeads heads and of kTiles times sixteen positions from `first` on, or of those that
// are left.
template <size_t kHeads, size_t kTiles, typename Keys>
void score_pair_tiles(
    const HeadsState& s, const AttendBlock& b, size_t head, size_t first, Keys& keys) {
    __mmask16 masks[kTiles];
    __m512 sums[kHeads][kTiles];
    unrolled<kTiles>([&](size_t t) __attribute__((always_inline)) {
        const size_t before = std::min(first + t * kHeadLanes, b.num_positions);
        const size_t count = std::min(b.num_positions - before, kHeadLanes);
        masks[t] = static_cast<__mmask16>((1u << count) - 1);
        unrolled<kHeads>([&](size_t h)
                             __attribute__((always_inline)) { sums[h][t] = _mm512_setzero_ps(); });
    });
    auto pairs = keys.template from<kTiles>(first);
    const Bf16* query = s.query + 2 * head;
    for (size_t pair = 0; pair < s.latent / 2; ++pair) {
        __m512i columns[kTiles];
        keys.template fetch<kTiles>();
        unrolled<kTiles>([&](size_t t) __attribute__((always_inline)) {
            columns[t] = pairs.load(t, masks[t]);
        });
        unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
            const __m512i q = _mm512_set1_epi32(pair_at(query + 2 * h));
            unrolled<kTiles>([&](size_t t) __attribute__((always_inline)) {
                sums[h][t] = dot(sums[h][t], columns[t], q);
            });
        });
        pairs.next();
        query += 2 * kHeadLanes;
    }
    float* scores = s.scores + head * kAttentionBlock + first;
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        unrolled<kTiles>([&](size_t t) __attribute__((always_inline)) {
            _mm512_store_ps(scores + h * kAttentionBlock + t * kHeadLanes,
                            _mm512_mul_ps(sums[h][t], _mm512_set1_ps(b.scale)));
        });
    });
}

// As many tiles of a pass over the keys as the registers hold sums beside what is multiplied.
constexpr size_t pair_tiles(size_t num_heads) {
    return num_heads > 4 ? 2 : 4;
}

// Scores of kPairHeads heads from `head` on at most.
template <typename Keys>
void score_pair_heads(const HeadsState& s, const AttendBlock& b, size_t head, Keys keys) {
    const size_t count = std::min(b.end_of_heads(s) - head, kPairHeads);
    with_rows<kPairHeads>(count, [&]<size_t kHeads>() {
        constexpr size_t kTiles = pair_tiles(kHeads);
        for (size_t first = 0; first < b.num_positions; first += kTiles * kHeadLanes) {
            score_pair_tiles<kHeads, kTiles>(s, b, head, first, keys);
        }
    });
}

// The first line that the scores fetch: of the values that follow them, or of their own keys.
inline uintptr_t first_fetched(const HeadsState& s, const AttendBlock& b) {
    if (s.num_heads <= kNearHeads) return reinterpret_cast<uintptr_t>(b.ckv) + kNearBytes;
    return reinterpret_cast<uintptr_t>(b.values);
}

// Of the block's heads. REQUIRES: b.keys_in_pairs.
inline void score_key_pairs(const HeadsState& s, const AttendBlock& b) {
    for (size_t head = b.first_head; head < b.end_of_heads(s); head += kPairHeads) {
        score_pair_heads(s, b, head, Bf16KeyPairs(b.ckv, first_fetched(s, b)));
    }
    // The sums of so few positions ask for few lines.
    if (b.num_next > b.num_positions) fetch_key_pairs(s, b.next_ckv, b.num_next);
}

}  // namespace
}  // namespace afd::ops::cpu
