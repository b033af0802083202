// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scores of keys that the cache holds in pairs (KeyOrder::kPairs, ops/format/gqa_cache.h) for
// classes that multiply floats. Lanes are positions: a load of pairs has the even elements of as
// many keys, and the odd ones. The sixteen partial sums of a score are registers that follow each
// other, and meet as in ops/tensor/lanes.h without a shuffle: of elements 16 t + 2 j the sums of
// j = 0 and 4, of 2 and 6, both of these and so on, then likewise of elements 16 t + 2 j + 1. So
// the bits are those of rows. Included by kernels_avx*.cc only.
//
// Class, beside what ops/cpu/attend_floats.h asks for:
//   Lanes                              its registers: Floats, which + adds, kWidth, zero(),
//                                      load(from), store(to, x), broadcast(value), multiply(a, b),
//                                      fused(a, b, sum), load_words(from)
//   kPairScores                        sums that stay in registers beside what is multiplied
//   kNextPair, kOddPlace, kNextSixteen from element 0 of a query to 2, to 1 and to 16
//   kNextHead                          from a head's query to that of the next one, of kScoreHeads
//   query_place(head, width)           where a head's query begins
//   kFetchSteps                        steps of a chain after which lines are fetched
//   half_of<is_odd>(words)             the even or the odd elements of pairs
//   load_some(from, count)             pairs of `count` positions, then zeros

#include <algorithm>
#include <array>
#include <bit>

#include "ops/cpu/attend_floats.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"
#include "ops/format/gqa_cache.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// Pairs of sixteen elements, in the order in which their sums can be added as soon as they are
// there.
constexpr size_t kPairsOfSixteen = 8;
constexpr std::array<size_t, kPairsOfSixteen> kPairOrder = {0, 4, 2, 6, 1, 5, 3, 7};

// Keys of a tile as its class loads them.
template <typename Class, bool kIsWhole>
struct LoadedPairs {
    const Bf16* at;        // Pair 0 of the first position.
    size_t num_positions;  // Unless kIsWhole.

    // The even or the odd elements of as many positions as register r has lanes, `step` elements
    // on.
    template <bool kIsOdd>
    [[gnu::always_inline]] auto half(size_t step, size_t r) const {
        const Bf16* const from = at + step + r * 2 * Class::Lanes::kWidth;
        if constexpr (kIsWhole) {
            return Class::template half_of<kIsOdd>(
                Class::Lanes::load_words(reinterpret_cast<const std::byte*>(from)));
        } else {
            return Class::template half_of<kIsOdd>(Class::load_some(from, num_positions));
        }
    }
};

// Some heads and kRegisters times as many positions as a register has lanes. Keys: as LoadedPairs.
template <typename Class, typename Keys, size_t kHeads, size_t kRegisters>
struct KeyPairTile {
    using Lanes = typename Class::Lanes;
    static constexpr size_t kSums = kHeads * kRegisters;
    using Sums = typename Lanes::Floats[kSums];

    const float* query;  // Of the first head.
    Keys keys;
    size_t num_pairs;

    // The chains of elements 16 t + 2 pair, or of those behind them.
    template <bool kIsOdd, typename Fetch>
    [[gnu::always_inline]] void add_chains(size_t pair, Sums& sums, const Fetch& fetch) const {
        unrolled<kSums>([&](size_t i) __attribute__((always_inline)) { sums[i] = Lanes::zero(); });
        const float* q = query + pair * Class::kNextPair + (kIsOdd ? Class::kOddPlace : 0);
        Keys k = keys;
        k.at += pair * kKeyPairStep;
        const auto add = [&](size_t step) __attribute__((always_inline)) {
            typename Lanes::Floats key[kRegisters];
            unrolled<kRegisters>([&](size_t r) __attribute__((always_inline)) {
                key[r] = k.template half<kIsOdd>(step * kPairsOfSixteen * kKeyPairStep, r);
            });
            unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
                const size_t place = step * Class::kNextSixteen + h * Class::kNextHead;
                const auto element = Lanes::broadcast(q[place]);
                unrolled<kRegisters>([&](size_t r) __attribute__((always_inline)) {
                    auto& sum = sums[h * kRegisters + r];
                    sum = Lanes::fused(element, key[r], sum);
                });
            });
        };
        const auto go_on = [&](size_t num_steps) __attribute__((always_inline)) {
            q += num_steps * Class::kNextSixteen;
            k.at += num_steps * kPairsOfSixteen * kKeyPairStep;
            pair += num_steps * kPairsOfSixteen;
        };
        while (pair + (Class::kFetchSteps - 1) * kPairsOfSixteen < num_pairs) {
            fetch();
            unrolled<Class::kFetchSteps>(add);
            go_on(Class::kFetchSteps);
        }
        while (pair < num_pairs) {
            add(0);
            go_on(1);
        }
    }

    // All even elements, or all odd ones.
    template <bool kIsOdd, typename Fetch>
    [[gnu::always_inline]] void add_half(Sums& sums, const Fetch& fetch) const {
        alignas(64) float waiting[std::bit_width(kPairsOfSixteen) - 1][kSums * Lanes::kWidth];
        size_t num_waiting = 0;
        for (size_t i = 0; i < kPairsOfSixteen; ++i) {
            add_chains<kIsOdd>(kPairOrder[i], sums, fetch);
            for (size_t with = i; with % 2 != 0; with /= 2) {
                const float* before = waiting[--num_waiting];
                unrolled<kSums>([&](size_t k) __attribute__((always_inline)) {
                    sums[k] = sums[k] + Lanes::load(before + k * Lanes::kWidth);
                });
            }
            if (i + 1 == kPairsOfSixteen) break;
            float* const to = waiting[num_waiting++];
            unrolled<kSums>([&](size_t k) __attribute__((always_inline)) {
                Lanes::store(to + k * Lanes::kWidth, sums[k]);
            });
        }
    }

    // to: [kHeads], kRowFloats apart, at the first position.
    template <typename Fetch>
    void run(float scale, float* to, const Fetch& fetch) const {
        alignas(64) float even[kSums * Lanes::kWidth];
        Sums sums;
        add_half<false>(sums, fetch);
        unrolled<kSums>([&](size_t k) __attribute__((always_inline)) {
            Lanes::store(even + k * Lanes::kWidth, sums[k]);
        });
        add_half<true>(sums, fetch);
        unrolled<kSums>([&](size_t k) __attribute__((always_inline)) {
            const auto sum = sums[k] + Lanes::load(even + k * Lanes::kWidth);
            Lanes::store(to + k / kRegisters * kRowFloats + k % kRegisters * Lanes::kWidth,
                         Lanes::multiply(sum, Lanes::broadcast(scale)));
        });
    }
};

template <typename Class, size_t kHeads>
inline constexpr size_t kRegistersMost = std::min<size_t>(Class::kPairScores / kHeads,
                                                          kAttentionBlock / Class::Lanes::kWidth);

// Scores of kHeads heads, whose queries are Class::kNextHead apart.
template <typename Class, size_t kHeads, typename Fetch>
void score_pair_heads(
    const HeadsState& s, const AttendBlock& b, size_t head, ScoreRows& scores, const Fetch& fetch) {
    constexpr size_t kWidth = Class::Lanes::kWidth;
    const auto tile = [&]<size_t kRegisters, bool kIsWhole>(size_t position) {
        using Keys = LoadedPairs<Class, kIsWhole>;
        const KeyPairTile<Class, Keys, kHeads, kRegisters> t{
            query_floats(s) + Class::query_place(head, query_width(s.latent)),
            {b.ckv + 2 * position, b.num_positions},
            s.latent / 2};
        t.run(b.scale, scores.row(head) + position, fetch);
    };
    if (b.num_positions < kWidth) return tile.template operator()<1, false>(0);
    for_each_part<kRegistersMost<Class, kHeads>>(
        0, b.num_positions / kWidth, [&]<size_t kRegisters>(size_t first) {
            tile.template operator()<kRegisters, true>(first * kWidth);
        });
    if (b.num_positions % kWidth != 0) {
        tile.template operator()<1, true>(b.num_positions - kWidth);
    }
}

// Of the block's heads. REQUIRES: b.keys_in_pairs.
template <typename Class>
void key_pair_scores(const HeadsState& s, const AttendBlock& b, ScoreRows& scores) {
    constexpr size_t kHeadsMost = Class::kScoreHeads;
    size_t num_tiles = 0;
    for_each_group<kHeadsMost>(b.first_head, b.end_of_heads(s), [&]<size_t kHeads>(size_t) {
        constexpr size_t kRegisters = kAttentionBlock / Class::Lanes::kWidth;
        num_tiles += (kRegisters - 1) / kRegistersMost<Class, kHeads> + 1;
    });
    LineFetches values(CacheLevel::kFirst,
                       b.values,
                       b.num_positions * s.latent * sizeof(Bf16),
                       std::max<size_t>(num_tiles * (s.latent / Class::kFetchSteps), 1));
    for_each_group<kHeadsMost>(b.first_head, b.end_of_heads(s), [&]<size_t kHeads>(size_t head) {
        score_pair_heads<Class, kHeads>(
            s, b, head, scores, [&]() __attribute__((always_inline)) { values.next(); });
    });
}

}  // namespace
}  // namespace afd::ops::cpu
