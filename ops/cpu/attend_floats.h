// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loops over heads, positions and columns of ops/cpu/attend_rows.h for classes that multiply
// floats. Queries are floats, each row padded with zeros to query_width(): [head][latent], then
// [head][rope], in an order within a row that the class likes. Included by kernels_avx*.cc only.
//
// Class is what an instruction set makes of it:
//   kHeadsMost, kBlockColumns          heads at once at most, a power of two; columns of a block
//   kPositions<heads>, kBlocks<heads>  of a tile of scores, and of sums
//   expand(rows, heads, count, to)     rows of `count` values as floats, query_width(count) apart
//   score<heads, positions>(s, b, head, first)
//                                      scores of these heads and positions
//   add<heads, blocks>(s, b, p, head, column)
//                                      o = o · alpha, then o += p · values, positions ascending;
//                                      p [head][kAttentionBlock] as floats
//   add_last<heads>(s, b, p, head, column, left)
//                                      the same of the last columns, fewer than a block

#include <algorithm>
#include <cstddef>
#include <limits>

#include "ops/cpu/attend_rows.h"
#include "ops/cpu/kernels.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

inline float* query_floats(const HeadsState& s) {
    return reinterpret_cast<float*>(s.query);
}
inline const float* latent_floats(const HeadsState& s, size_t head) {
    return query_floats(s) + head * query_width(s.latent);
}
inline const float* rope_floats(const HeadsState& s, size_t head) {
    return query_floats(s) + s.num_heads * query_width(s.latent) + head * query_width(s.rope);
}

template <typename Class>
void begin_float_heads(const HeadQueries& q, const HeadsState& s) {
    float* floats = query_floats(s);
    Class::expand(q.query, s.num_heads, s.latent, floats);
    Class::expand(q.query_rope, s.num_heads, s.rope, floats + s.num_heads * query_width(s.latent));
    std::fill_n(s.maximum, s.num_heads, -std::numeric_limits<float>::infinity());
    std::fill_n(s.sum, s.num_heads, 0.0f);
    std::fill_n(s.o, s.num_heads * s.o_stride, 0.0f);
}

// Calls body.template operator()<count>(head) for the heads of a block, kHeads at once while there
// are as many.
template <size_t kHeads, typename Body>
[[gnu::always_inline]] inline void for_each_heads(size_t head, size_t last, const Body& body) {
    for (; head + kHeads <= last; head += kHeads) body.template operator()<kHeads>(head);
    if constexpr (kHeads > 1) for_each_heads<kHeads / 2>(head, last, body);
}

template <typename Class>
void float_scores(const HeadsState& s, const AttendBlock& b) {
    for_each_heads<Class::kHeadsMost>(
        b.first_head, b.end_of_heads(s), [&]<size_t kHeads>(size_t head) {
            constexpr size_t kPositions = Class::template kPositions<kHeads>;
            size_t first = 0;
            for (; first + kPositions <= b.num_positions; first += kPositions) {
                Class::template score<kHeads, kPositions>(s, b, head, first);
            }
            for (; first < b.num_positions; ++first) {
                Class::template score<kHeads, 1>(s, b, head, first);
            }
        });
}

template <typename Class>
void float_sums(const HeadsState& s, const AttendBlock& b) {
    alignas(64) float p[kHeadsMax * kAttentionBlock];
    const size_t last = b.end_of_heads(s);
    for (size_t i = b.first_head * kAttentionBlock; i < last * kAttentionBlock; ++i) {
        p[i] = to_float(s.p[i]);
    }
    for_each_heads<Class::kHeadsMost>(b.first_head, last, [&]<size_t kHeads>(size_t head) {
        constexpr size_t kBlocks = Class::template kBlocks<kHeads>;
        constexpr size_t kColumns = Class::kBlockColumns;
        size_t column = 0;
        for (; column + kColumns * kBlocks <= s.latent; column += kColumns * kBlocks) {
            Class::template add<kHeads, kBlocks>(s, b, p, head, column);
        }
        for (; column + kColumns <= s.latent; column += kColumns) {
            Class::template add<kHeads, 1>(s, b, p, head, column);
        }
        if (column < s.latent) {
            Class::template add_last<kHeads>(s, b, p, head, column, s.latent - column);
        }
    });
}

}  // namespace
}  // namespace afd::ops::cpu
