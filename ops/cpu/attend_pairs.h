// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention of some heads in the order of class amx, by ordinary fused multiply-adds
// (ops/cpu/pair_chains.h, which says what Lanes is):
//   a score is summed over the pairs of the latent part, then over those of the rotated one, each
//   part beginning with a step of its own; then it is multiplied by the scale;
//   o = o · alpha, then it is summed over the pairs of positions of the block.
// Queries stand as pairs of heads, [pair][kHeadsMax][2]; all else by rows, as in attend_rows.h.
// Included by kernels_amx_*.cc only.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "ops/cpu/kernels.h"
#include "ops/cpu/pair_chains.h"
#include "ops/cpu/softmax_row.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

inline void turn_pairs(const Bf16* rows, size_t num_heads, size_t count, Bf16* turned) {
    std::fill_n(turned, (count + 1) / 2 * 2 * kHeadsMax, Bf16{});
    for (size_t head = 0; head < num_heads; ++head) {
        for (size_t i = 0; i < count; ++i) {
            turned[i / 2 * 2 * kHeadsMax + 2 * head + i % 2] = rows[head * count + i];
        }
    }
}

void begin_pairs(const HeadQueries& q, const HeadsState& s) {
    turn_pairs(q.query, s.num_heads, s.latent, s.query);
    turn_pairs(q.query_rope, s.num_heads, s.rope, s.query + (s.latent + 1) / 2 * 2 * kHeadsMax);
    std::fill_n(s.maximum, s.num_heads, -std::numeric_limits<float>::infinity());
    std::fill_n(s.sum, s.num_heads, 0.0f);
    std::fill_n(s.o, s.num_heads * s.o_stride, 0.0f);
}

// sums[position] of kPositions keys, `count` elements apart, and as many heads as lanes.
template <typename Lanes, size_t kPositions>
void add_scores(const Bf16* query,
                const Bf16* keys,
                size_t count,
                typename Lanes::Floats (&sums)[kPositions]) {
    const size_t num_pairs = (count + 1) / 2;
    for (size_t first = 0; first < num_pairs; first += kStepPairs) {
        PairChains<Lanes, kPositions, 1> chains;
        const size_t last = std::min(first + kStepPairs, num_pairs);
        for (size_t pair = first; pair < last; ++pair) {
            const auto* pairs = reinterpret_cast<const uint16_t*>(query + pair * 2 * kHeadsMax);
            const auto even = Lanes::even(pairs);
            const auto odd = Lanes::odd(pairs);
            unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
                const Bf16* key = keys + p * count;
                chains.add(p, 0, Lanes::broadcast(to_float(key[2 * pair])), even);
                chains.add_odd(p, 0, Lanes::broadcast(second_of_pair(key, pair, count)), odd);
            });
        }
        for (size_t p = 0; p < kPositions; ++p) sums[p] = chains.end(p, 0, sums[p]);
    }
}

// Scores of kPositions positions and the heads from `head` on, not yet scaled.
template <typename Lanes, size_t kPositions>
void score_positions(const HeadsState& s, const AttendBlock& b, size_t first, size_t head) {
    typename Lanes::Floats sums[kPositions];
    for (auto& sum : sums) sum = Lanes::zero();
    const Bf16* query = s.query + 2 * head;
    add_scores<Lanes, kPositions>(query, b.ckv + first * s.latent, s.latent, sums);
    add_scores<Lanes, kPositions>(
        query + (s.latent + 1) / 2 * 2 * kHeadsMax, b.kr + first * s.rope, s.rope, sums);
    for (size_t p = 0; p < kPositions; ++p) {
        float lanes[Lanes::kWidth];
        Lanes::store(lanes, sums[p]);
        for (size_t h = 0; h < Lanes::kWidth && head + h < s.num_heads; ++h) {
            s.scores[(head + h) * kAttentionBlock + first + p] = lanes[h];
        }
    }
}

template <typename Lanes>
[[gnu::noinline]] void score_block(const HeadsState& s, const AttendBlock& b) {
    // Those of other heads are scratch.
    for (size_t head = b.first_head / Lanes::kWidth * Lanes::kWidth; head < b.end_of_heads(s);
         head += Lanes::kWidth) {
        size_t position = 0;
        for (; position + 4 <= b.num_positions; position += 4) {
            score_positions<Lanes, 4>(s, b, position, head);
        }
        for (; position < b.num_positions; ++position) {
            score_positions<Lanes, 1>(s, b, position, head);
        }
    }
}

// kWidth values of one row; of the last columns as many as there are, then zeros.
template <typename Lanes>
typename Lanes::Floats load_values(const Bf16* row, size_t left) {
    if (left >= Lanes::kWidth) return Lanes::widen(row);
    Bf16 padded[Lanes::kWidth] = {};
    std::copy_n(row, left, padded);
    return Lanes::widen(padded);
}

// o of kHeads heads and as many columns as lanes.
template <typename Lanes, size_t kHeads>
void accumulate_pairs(const HeadsState& s, const AttendBlock& b, size_t head, size_t column) {
    const size_t num_pairs = (b.num_positions + 1) / 2;
    const size_t left = s.latent - column;
    const Bf16* values = b.summed() + column;
    float* o = s.o + head * s.o_stride + column;
    const Bf16* p = s.p + head * kAttentionBlock;
    typename Lanes::Floats sums[kHeads];
    for (size_t h = 0; h < kHeads; ++h) sums[h] = Lanes::load(o + h * s.o_stride);
    for (size_t first = 0; first < num_pairs; first += kStepPairs) {
        PairChains<Lanes, kHeads, 1> chains;
        const size_t last = std::min(first + kStepPairs, num_pairs);
        for (size_t pair = first; pair < last; ++pair) {
            const Bf16* row = values + 2 * pair * s.latent;
            const auto even = load_values<Lanes>(row, left);
            const bool is_whole = 2 * pair + 1 < b.num_positions;
            const auto odd = is_whole ? load_values<Lanes>(row + s.latent, left) : Lanes::zero();
            unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
                const Bf16* weights = p + h * kAttentionBlock;
                chains.add(h, 0, Lanes::broadcast(to_float(weights[2 * pair])), even);
                chains.add_odd(
                    h, 0, Lanes::broadcast(second_of_pair(weights, pair, b.num_positions)), odd);
            });
        }
        for (size_t h = 0; h < kHeads; ++h) sums[h] = chains.end(h, 0, sums[h]);
    }
    for (size_t h = 0; h < kHeads; ++h) Lanes::store(o + h * s.o_stride, sums[h]);
}

template <typename Lanes>
[[gnu::noinline]] void accumulate_block(const HeadsState& s, const AttendBlock& b) {
    for (size_t column = 0; column < s.latent; column += Lanes::kWidth) {
        const size_t last = b.end_of_heads(s);
        size_t head = b.first_head;
        for (; head + 4 <= last; head += 4) accumulate_pairs<Lanes, 4>(s, b, head, column);
        for (; head < last; ++head) accumulate_pairs<Lanes, 1>(s, b, head, column);
    }
}

// Only products with denormals as zeros; scales and the softmax are those of every class. Apart, so
// that no other arithmetic is moved in.
template <typename Lanes, auto kBlock>
[[gnu::noinline]] void without_denormals(const HeadsState& s, const AttendBlock& b) {
    const typename Lanes::DenormalsAreZero mode;
    kBlock(s, b);
}

template <typename Lanes>
void attend_pairs(const AttendBlock& b, const HeadsState& s) {
    without_denormals<Lanes, score_block<Lanes>>(s, b);
    for (size_t h = b.first_head; h < b.end_of_heads(s); ++h) {
        float* scores = s.scores + h * kAttentionBlock;
        for (size_t i = 0; i < b.num_positions; ++i) scores[i] = scores[i] * b.scale;
        softmax_step_of<TinyWeights::kZero>(scores,
                                            b.num_positions,
                                            s.maximum + h,
                                            s.sum + h,
                                            s.alpha + h,
                                            s.p + h * kAttentionBlock);
        float* o = s.o + h * s.o_stride;
        for (size_t c = 0; c < s.o_stride; ++c) o[c] = o[c] * s.alpha[h];
    }
    without_denormals<Lanes, accumulate_block<Lanes>>(s, b);
}

// One by one: for callers to have the class's runs of states wherever it is computed.
template <typename Lanes>
void attend_pair_spans(const AttendBlock& b, std::span<const HeadsSpan> spans, Bf16*) {
    for (const HeadsSpan& span : spans) attend_pairs<Lanes>(b.of(span), *span.state);
}

}  // namespace
}  // namespace afd::ops::cpu
