// SPDX-License-Identifier: Apache-2.0
#pragma once

// The online softmax of a few heads over blocks of kAttentionBlock positions; shared
// by mla_attention, mla_attention_v3 and gqa_attention. Internal to ops/.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/cpu/kernels.h"
#include "ops/format/attention_batch.h"
#include "ops/linear/panel_loop.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {

// Heads of one token that a task takes where threads are more than tokens; they share the cache
// rows that it reads. Otherwise a task takes as many as the kernels can.
inline constexpr size_t kHeadsPerTask = 8;

// Groups of heads that go together over a block of the cache, which is expanded once for all of
// them or holds what they read in order: at most so many, and at most as many as their states stay
// in the core's own cache.
inline constexpr size_t kGroupsTogetherMax = 8;

// How many of a token's groups go together, up to `most`, where tasks of `num_tokens` tokens go to
// `num_threads` threads: the number with the least time of the thread that has the most to do.
inline size_t groups_together(size_t num_groups,
                              size_t most,
                              size_t num_tokens,
                              size_t num_threads) {
    size_t best = 1;
    size_t least = SIZE_MAX;
    for (size_t count = 1; count <= most; ++count) {
        const size_t num_rounds = div_up(num_tokens * div_up(num_groups, count), num_threads);
        // In halves of a group's scores and sums: an expansion takes about one.
        const size_t time = num_rounds * (2 * count + 1);
        if (time >= least) continue;
        least = time;
        best = count;
    }
    return best;
}

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

// Of `num_groups`, those that go over the cache together at most.
inline size_t groups_together_max(size_t num_groups, size_t latent, size_t rope) {
    return cpu::block_sizes().in_second_level(heads_state_bytes(latent, rope),
                                              std::min(kGroupsTogetherMax, num_groups));
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

// kernels.begin_heads(), and a head's sink as the first of its scores, of a position without a
// value: m = sink, l = exp(sink - m) = 1, o = 0.
inline void begin_with_sinks(const cpu::HeadQueries& queries,
                             const cpu::Kernels& kernels,
                             const cpu::HeadsState& state) {
    kernels.begin_heads(queries, state);
    if (queries.sinks == nullptr) return;
    std::copy_n(queries.sinks, state.num_heads, state.maximum);
    std::fill_n(state.sum, state.num_heads, 1.0f);
}

// block_of(first, count) gives the keys of positions [first, first + count), which lie in one block
// of the cache. Positions are [begin, end).
template <typename BlockOf>
void attend_positions(const cpu::HeadQueries& queries,
                      size_t begin,
                      size_t end,
                      const cpu::Kernels& kernels,
                      const cpu::HeadsState& state,
                      const BlockOf& block_of,
                      Bf16* latent) {
    begin_with_sinks(queries, kernels, state);
    for (size_t first = begin; first < end;) {
        const size_t count = std::min(kAttentionBlock - first % kAttentionBlock, end - first);
        kernels.attend_block(block_of(first, count), state);
        first += count;
    }
    kernels.finish_heads(state, latent);
}

// Tokens of one sequence from `first` on, before `last`, that a state of `num_heads` heads a token
// has room for and whose positions are in one block: they share all keys but some of that block, so
// that few heads fill a register too.
inline size_t tokens_together(const AttentionBatch& batch,
                              size_t num_heads,
                              size_t first,
                              size_t last) {
    const size_t most = std::min(last, first + cpu::kHeadsMax / num_heads);
    const auto block = [&](size_t t) {
        return static_cast<size_t>(batch.positions[t]) / kAttentionBlock;
    };
    size_t end = first + 1;
    while (end < most && batch.block_tables[end] == batch.block_tables[first] &&
           block(end) == block(first)) {
        ++end;
    }
    return end - first;
}

// The same as attend_positions for each of these tokens, whose heads follow each other in
// `queries`, `state` and `latent`. num_positions [num_tokens] have the same number of whole blocks
// before their last one. block_of(first, count) as there.
template <typename BlockOf>
void attend_together(const cpu::HeadQueries& queries,
                     std::span<const size_t> num_positions,
                     const cpu::Kernels& kernels,
                     const cpu::HeadsState& state,
                     const BlockOf& block_of,
                     Bf16* latent) {
    const size_t shared = (num_positions[0] - 1) / kAttentionBlock * kAttentionBlock;
    begin_with_sinks(queries, kernels, state);
    for (size_t first = 0; first < shared; first += kAttentionBlock) {
        kernels.attend_block(block_of(first, kAttentionBlock), state);
    }
    // Each token's last block is another one.
    const size_t num_heads = state.num_heads / num_positions.size();
    for (size_t i = 0; i < num_positions.size(); ++i) {
        cpu::AttendBlock block = block_of(shared, num_positions[i] - shared);
        block.first_head = i * num_heads;
        block.last_head = block.first_head + num_heads;
        kernels.attend_block(block, state);
    }
    kernels.finish_heads(state, latent);
}

}  // namespace afd::ops
