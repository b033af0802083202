// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loops over heads, positions and columns of ops/cpu/attend_rows.h for classes that multiply
// floats. Queries are floats: kHeadsMax rows of the latent part, then as many of the rope, each
// padded with zeros to query_width(), in an order that the class likes, as has o. Included by
// kernels_avx*.cc only.
//
// Class is what an instruction set makes of it:
//   kScoreHeads, kSumHeads             heads at once at most
//   kBlockColumns                      columns of a block
//   kPositions<heads>, kBlocks<heads>  of a tile of scores, and of sums
//   kScoreParts                        parts of a tile of scores at which lines are fetched
//   kFetchSteps                        positions of a tile of sums after which lines are
//   expand(rows, heads, count, to)     rows of `count` values as floats
//   score_tile<heads>(s, b, head, scores)
//                                      what has score<positions>(first, fetches) for these heads,
//                                      maybe with anything behind the last position
//   softmax(s, b, scores, p)           softmax_step() of the block's heads; p are floats of bf16
//                                      values
//   add<heads, blocks, is_whole>(tile)
//                                      o = o · alpha, then o += p · values, positions ascending
// While a block is computed the lines of the next one are fetched, as evenly as tiles follow each
// other: keys during the scores, values during the sums. With keys in pairs (key_pair_scores.h) the
// scores fetch the block's own values and the sums the next keys (AttendBlock::behind_values).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "ops/cpu/attend_rows.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/line_fetches.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/softmax_row.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

inline float* query_floats(const HeadsState& s) {
    return reinterpret_cast<float*>(s.query);
}
inline float* rope_floats(const HeadsState& s) {
    return query_floats(s) + kHeadsMax * query_width(s.latent);
}

template <typename Class>
void begin_float_heads(const HeadQueries& q, const HeadsState& s) {
    Class::expand(q.query, s.num_heads, s.latent, query_floats(s));
    Class::expand(q.query_rope, s.num_heads, s.rope, rope_floats(s));
    std::fill_n(s.maximum, s.num_heads, -std::numeric_limits<float>::infinity());
    std::fill_n(s.sum, s.num_heads, 0.0f);
    std::fill_n(s.o, s.num_heads * s.o_stride, 0.0f);
}

// Calls body.template operator()<count>(begin) for as few parts of [first, last) as there can be
// with kMost at most, all of about one size.
template <size_t kMost, typename Body>
[[gnu::always_inline]] inline void for_each_part(size_t first, size_t last, const Body& body) {
    const size_t count = last - first;
    const size_t num_parts = (count + kMost - 1) / kMost;
    for (size_t part = 0; part < num_parts; ++part) {
        const size_t begin = first + part * count / num_parts;
        const size_t end = first + (part + 1) * count / num_parts;
        with_rows<kMost>(end - begin,
                         [&]<size_t kCount>() { body.template operator()<kCount>(begin); });
    }
}

// The same for parts that end at multiples of kMost.
template <size_t kMost, typename Body>
[[gnu::always_inline]] inline void for_each_group(size_t first, size_t last, const Body& body) {
    while (first < last) {
        const size_t end = std::min((first / kMost + 1) * kMost, last);
        with_rows<kMost>(end - first,
                         [&]<size_t kCount>() { body.template operator()<kCount>(first); });
        first = end;
    }
}

// Scores and weights of the heads of a block, which have room behind them for what a tile writes
// too much; whole registers of eight, so that none of them lies in two lines.
constexpr size_t kRowFloats = kAttentionBlock + 8;
struct ScoreRows {
    alignas(64) float values[kHeadsMax * kRowFloats];

    float* row(size_t head) { return values + head * kRowFloats; }
    const float* row(size_t head) const { return values + head * kRowFloats; }
};

// kNearHeads have the speed of memory only where lines are fetched in the order in which they are
// read, ahead of that: the processor follows with fetches of its own. One head, a block of 64
// positions of 128 from memory (Zen 4, class avx2): 1.8 µs; 2 KiB ahead 2.6, 4 KiB 2.2, and 2.2
// with the next block fetched, as by more heads.
constexpr size_t kNearBytes = 8192;
constexpr size_t kNearPositions = 32;

inline bool fetches_near(const HeadsState& s, const AttendBlock& b) {
    return s.num_heads <= kNearHeads && b.values != nullptr;
}

// A score's bits do not depend on its tile: the last one of many positions begins early enough to
// be whole.
template <typename Class>
void float_scores(const HeadsState& s, const AttendBlock& b, ScoreRows& scores) {
    const size_t last = b.end_of_heads(s);
    size_t num_tiles = 0;
    for_each_group<Class::kScoreHeads>(b.first_head, last, [&]<size_t kHeads>(size_t) {
        constexpr size_t kPositions = Class::template kPositions<kHeads>;
        num_tiles += (b.num_positions + kPositions - 1) / kPositions;
    });
    const size_t row_bytes = s.latent * sizeof(Bf16);
    const bool is_near = fetches_near(s, b);
    num_tiles = std::max<size_t>(num_tiles, 1);
    LineFetches keys(is_near ? CacheLevel::kFirst : CacheLevel::kSecond,
                     is_near ? reinterpret_cast<const std::byte*>(b.ckv) + kNearBytes
                             : reinterpret_cast<const std::byte*>(b.next_ckv),
                     (is_near ? b.num_positions : b.num_next) * row_bytes,
                     num_tiles * Class::kScoreParts);
    LineFetches rope(CacheLevel::kSecond, b.next_kr, b.num_next * s.rope * sizeof(Bf16), num_tiles);
    for_each_group<Class::kScoreHeads>(b.first_head, last, [&]<size_t kHeads>(size_t head) {
        constexpr size_t kPositions = Class::template kPositions<kHeads>;
        const auto tile = Class::template score_tile<kHeads>(s, b, head, scores);
        size_t done = 0;
        for (; done < b.num_positions && b.num_positions >= kPositions; done += kPositions) {
            rope.next();
            tile.template score<kPositions>(std::min(done, b.num_positions - kPositions), keys);
        }
        for (; done < b.num_positions; ++done) tile.template score<1>(done, keys);
    });
}

// Sums of some heads and columns, over the positions [first, last) of a block; `left` columns,
// where they are fewer than a block of them.
struct SumTile {
    const HeadsState& s;
    const AttendBlock& b;
    const ScoreRows& p;
    LineFetches& fetches;
    size_t head;
    size_t first;
    size_t last;
    size_t column = 0;
    size_t left = 0;

    float* sums(size_t h) const { return s.o + (head + h) * s.o_stride + column; }
    // What they begin with is multiplied by this.
    float alpha(size_t h) const { return first == 0 ? s.alpha[head + h] : 1.0f; }
    const Bf16* values() const { return b.summed() + first * s.latent + column; }
    const float* weights() const { return p.row(head); }
};

template <typename Class, size_t kHeads>
void add_columns(SumTile tile) {
    constexpr size_t kBlocks = Class::template kBlocks<kHeads>;
    constexpr size_t kColumns = Class::kBlockColumns;
    const size_t end = tile.s.latent;
    for (; tile.column + kColumns * kBlocks <= end; tile.column += kColumns * kBlocks) {
        Class::template add<kHeads, kBlocks, true>(tile);
    }
    for (; tile.column + kColumns <= end; tile.column += kColumns) {
        Class::template add<kHeads, 1, true>(tile);
    }
    tile.left = end - tile.column;
    if (tile.left > 0) Class::template add<kHeads, 1, false>(tile);
}

template <typename Class>
void float_sums(const HeadsState& s, const AttendBlock& b, const ScoreRows& p) {
    constexpr size_t kParts = kAttentionBlock / Class::kFetchSteps;
    const size_t last = b.end_of_heads(s);
    if (fetches_near(s, b)) {
        // All columns of some positions, and so on, so that values are read in order, too.
        const size_t bytes = b.num_positions * s.latent * sizeof(Bf16);
        LineFetches fetches(CacheLevel::kFirst,
                            reinterpret_cast<const std::byte*>(b.values) + kNearBytes,
                            bytes,
                            kParts);
        for (size_t first = 0; first < b.num_positions; first += kNearPositions) {
            const size_t end = std::min(first + kNearPositions, b.num_positions);
            for_each_part<kNearHeads>(b.first_head, last, [&]<size_t kHeads>(size_t head) {
                add_columns<Class, kHeads>({s, b, p, fetches, head, first, end});
            });
        }
        return;
    }
    size_t num_tiles = 1;
    for_each_part<Class::kSumHeads>(b.first_head, last, [&]<size_t kHeads>(size_t) {
        num_tiles += s.latent / Class::kBlockColumns / Class::template kBlocks<kHeads>;
    });
    const std::span<const std::byte> fetched = b.behind_values(s.latent);
    LineFetches fetches(b.keys_in_pairs ? CacheLevel::kFirst : CacheLevel::kSecond,
                        fetched.data(),
                        fetched.size(),
                        num_tiles * kParts);
    for_each_part<Class::kSumHeads>(b.first_head, last, [&]<size_t kHeads>(size_t head) {
        add_columns<Class, kHeads>({s, b, p, fetches, head, 0, b.num_positions});
    });
}

// Class::softmax of one head, by ops/cpu/softmax_row.h.
inline void softmax_one_row(
    const HeadsState& s, const AttendBlock& b, size_t head, ScoreRows& scores, ScoreRows& p) {
    Bf16* const weights = s.p + head * kAttentionBlock;
    softmax_step(
        scores.row(head), b.num_positions, s.maximum + head, s.sum + head, s.alpha + head, weights);
    for (size_t i = 0; i < kAttentionBlock; ++i) p.row(head)[i] = to_float(weights[i]);
}

}  // namespace
}  // namespace afd::ops::cpu
