// SPDX-License-Identifier: Apache-2.0
#pragma once

// The online softmax of a few heads of one token over blocks of kAttentionBlock positions; shared
// by mla_attention, mla_attention_v3 and gqa_attention. Internal to ops/.

#include <algorithm>
#include <cstddef>

#include "ops/cpu/kernels.h"
#include "ops/format/attention_batch.h"
#include "ops/linear/panel_loop.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {

// Heads of one token that a task takes where threads are more than tokens; they share the cache
// rows that it reads. Otherwise a task takes as many as the kernels can.
inline constexpr size_t kHeadsPerTask = 8;

// Columns of an accumulator row, as the kernels want it.
inline size_t padded_latent(size_t latent) {
    return div_up(latent, 32) * 32;
}

inline size_t heads_state_bytes(size_t latent, size_t rope) {
    return workspace_bytes_of<Bf16>(cpu::query_elements(latent, rope)) +
           workspace_bytes_of<float>(cpu::kHeadsMax * kAttentionBlock) +
           workspace_bytes_of<Bf16>(cpu::kHeadsMax * kAttentionBlock) +
           workspace_bytes_of<float>(cpu::kHeadsMax * padded_latent(latent)) +
           3 * workspace_bytes_of<float>(cpu::kHeadsMax);
}

// One thread's state of cpu::kHeadsMax heads.
inline cpu::HeadsState take_heads_state(size_t latent, size_t rope, WorkspaceCursor& cursor) {
    cpu::HeadsState state;
    state.num_heads = cpu::kHeadsMax;
    state.latent = latent;
    state.rope = rope;
    state.o_stride = padded_latent(latent);
    state.query = cursor.take<Bf16>(cpu::query_elements(latent, rope));
    state.scores = cursor.take<float>(cpu::kHeadsMax * kAttentionBlock);
    state.p = cursor.take<Bf16>(cpu::kHeadsMax * kAttentionBlock);
    state.o = cursor.take<float>(cpu::kHeadsMax * state.o_stride);
    state.maximum = cursor.take<float>(cpu::kHeadsMax);
    state.sum = cursor.take<float>(cpu::kHeadsMax);
    state.alpha = cursor.take<float>(cpu::kHeadsMax);
    return state;
}

// block_of(first, count) gives the keys of positions [first, first + count).
template <typename BlockOf>
void attend_positions(const cpu::HeadQueries& queries,
                      size_t num_positions,
                      const cpu::Kernels& kernels,
                      const cpu::HeadsState& state,
                      const BlockOf& block_of,
                      Bf16* latent) {
    kernels.begin_heads(queries, state);
    for (size_t first = 0; first < num_positions; first += kAttentionBlock) {
        const size_t count = std::min(kAttentionBlock, num_positions - first);
        kernels.attend_block(block_of(first, count), state);
    }
    kernels.finish_heads(state, latent);
}

}  // namespace afd::ops
