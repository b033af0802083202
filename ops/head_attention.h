// SPDX-License-Identifier: Apache-2.0
#pragma once

// The online softmax of a few heads of one token over blocks of kAttentionBlock positions; shared
// by mla_attention and mla_attention_v3. Internal to ops/.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "ops/bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/latent_cache.h"
#include "ops/panel_loop.h"
#include "ops/workspace.h"

namespace afd::ops {

// Heads of one token that a task takes where threads are more than tokens; they share the cache
// rows that it reads. Otherwise a task takes as many as the kernels can.
inline constexpr size_t kHeadsPerTask = 8;
inline constexpr size_t kHeadsMax = cpu::kScoreHeadsMax;

// Columns of an accumulator row, as the kernels want it.
inline size_t padded_latent(size_t latent) {
    return div_up(latent, 32) * 32;
}

// One thread's state of kHeadsMax heads.
struct HeadScratch {
    float* scores;  // [heads][kAttentionBlock]
    Bf16* p;        // [heads][kAttentionBlock]
    float* o;       // [heads][padded latent]
    float maximum[kHeadsMax];
    float sum[kHeadsMax];
    float alpha[kHeadsMax];
};

inline size_t head_scratch_bytes(size_t latent) {
    return workspace_bytes_of<float>(kHeadsMax * kAttentionBlock) +
           workspace_bytes_of<Bf16>(kHeadsMax * kAttentionBlock) +
           workspace_bytes_of<float>(kHeadsMax * padded_latent(latent));
}

inline HeadScratch take_head_scratch(size_t latent, WorkspaceCursor& cursor) {
    HeadScratch scratch{};
    scratch.scores = cursor.take<float>(kHeadsMax * kAttentionBlock);
    scratch.p = cursor.take<Bf16>(kHeadsMax * kAttentionBlock);
    scratch.o = cursor.take<float>(kHeadsMax * padded_latent(latent));
    return scratch;
}

// For every block: score(first, count) fills scratch.scores; then, with scratch.p and scratch.alpha
// set, accumulate(first, count) scales and adds to scratch.o. Afterwards o / sum is the latent.
template <typename Score, typename Accumulate>
void attend_positions(size_t num_positions,
                      size_t num_heads,
                      size_t latent,
                      const cpu::Kernels& kernels,
                      HeadScratch& scratch,
                      const Score& score,
                      const Accumulate& accumulate) {
    std::fill_n(scratch.maximum, num_heads, -std::numeric_limits<float>::infinity());
    std::fill_n(scratch.sum, num_heads, 0.0f);
    std::fill_n(scratch.o, num_heads * padded_latent(latent), 0.0f);
    for (size_t first = 0; first < num_positions; first += kAttentionBlock) {
        const size_t count = std::min(kAttentionBlock, num_positions - first);
        score(first, count);
        for (size_t h = 0; h < num_heads; ++h) {
            kernels.softmax_step(scratch.scores + h * kAttentionBlock,
                                 count,
                                 &scratch.maximum[h],
                                 &scratch.sum[h],
                                 &scratch.alpha[h],
                                 scratch.p + h * kAttentionBlock);
        }
        accumulate(first, count);
    }
}

}  // namespace afd::ops
