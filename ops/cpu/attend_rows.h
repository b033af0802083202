// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention of some heads with everything in the order of rows: queries [head][element], scores and
// p [head][kAttentionBlock], o [head][column]. A class adds scores(state, block) and
// accumulate(state, block). Included by kernels_*.cc only.

#include <algorithm>
#include <cstddef>
#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/cpu/softmax_row.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

inline const Bf16* query_row(const HeadsState& s, size_t head) {
    return s.query + head * s.latent;
}

inline const Bf16* query_rope_row(const HeadsState& s, size_t head) {
    return s.query + s.num_heads * s.latent + head * s.rope;
}

[[maybe_unused]] void begin_heads(const HeadQueries& q, const HeadsState& s) {
    std::copy_n(q.query, s.num_heads * s.latent, s.query);
    std::copy_n(q.query_rope, s.num_heads * s.rope, s.query + s.num_heads * s.latent);
    std::fill_n(s.maximum, s.num_heads, -std::numeric_limits<float>::infinity());
    std::fill_n(s.sum, s.num_heads, 0.0f);
    std::fill_n(s.o, s.num_heads * s.o_stride, 0.0f);
}

template <auto kScores, auto kAccumulate>
void attend_block(const AttendBlock& b, const HeadsState& s) {
    kScores(s, b);
    for (size_t h = b.first_head; h < b.end_of_heads(s); ++h) {
        softmax_step(s.scores + h * kAttentionBlock,
                     b.num_positions,
                     s.maximum + h,
                     s.sum + h,
                     s.alpha + h,
                     s.p + h * kAttentionBlock);
    }
    kAccumulate(s, b);
}

void finish_heads(const HeadsState& s, Bf16* latent) {
    for (size_t h = 0; h < s.num_heads; ++h) {
        const float* o = s.o + h * s.o_stride;
        for (size_t c = 0; c < s.latent; ++c)
            latent[h * s.latent + c] = from_float(o[c] / s.sum[h]);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
