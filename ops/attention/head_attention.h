// SPDX-License-Identifier: Apache-2.0
#pragma once

// The online softmax of a few heads over blocks of kAttentionBlock positions; shared
// by mla_attention, mla_attention_v3 and gqa_attention. Internal to ops/.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/cpu/kernels.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/round_up.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {

// Heads of one token that a task takes where threads are more than tokens; they share the cache
// rows that it reads. Otherwise a task takes as many as the kernels can.
inline constexpr size_t kHeadsPerTask = 8;

// Groups of heads that go together over a block of the cache, which is expanded once for all of
// them or holds what they read in order: at most this many, and no more than the core's own
// cache has room for with their states.
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
    return round_up(latent, 32);
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

// States of several tokens that go over a block together at most, where the class has a way to
// (Kernels::attend_spans).
inline size_t states_together_max(size_t latent, size_t rope) {
    return groups_together_max(kGroupsTogetherMax, latent, rope);
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

// Tokens of one sequence from `first` on, before `last`, whose positions are in one block, at most
// `most` of them: they share all keys but some of that block.
inline size_t tokens_together(const AttentionBatch& batch, size_t most, size_t first, size_t last) {
    last = std::min(last, first + std::min(most, cpu::kHeadsSpansMax));
    const auto block = [&](size_t t) {
        return static_cast<size_t>(batch.positions[t]) / kAttentionBlock;
    };
    size_t end = first + 1;
    while (end < last && batch.block_tables[end] == batch.block_tables[first] &&
           block(end) == block(first)) {
        ++end;
    }
    return end - first;
}

// kernels.attend_block() of each span, as Kernels::attend_spans has it. room:
// [cpu::spans_room_elements(latent)].
inline void attend_spans(const cpu::AttendBlock& block,
                         std::span<const cpu::HeadsSpan> spans,
                         const cpu::Kernels& kernels,
                         Bf16* room) {
    if (kernels.attend_spans != nullptr) return kernels.attend_spans(block, spans, room);
    for (const cpu::HeadsSpan& span : spans) kernels.attend_block(block.of(span), *span.state);
}

// Heads of tokens that share their keys: of each one the positions [begin, num_positions), which
// are as many whole blocks and some of the next one. States begin before and are finished
// afterwards. block_of(first, count) as for attend_positions.
template <typename BlockOf>
void attend_together(std::span<const cpu::HeadsSpan> tokens,
                     size_t begin,
                     const cpu::Kernels& kernels,
                     Bf16* room,
                     const BlockOf& block_of) {
    const size_t shared = (tokens[0].num_positions - 1) / kAttentionBlock * kAttentionBlock;
    std::array<cpu::HeadsSpan, cpu::kHeadsSpansMax> spans;
    size_t num_states = 0;
    for (const cpu::HeadsSpan& token : tokens) {
        if (num_states > 0 && spans[num_states - 1].state == token.state) continue;
        spans[num_states++] = {token.state, 0, token.state->num_heads, kAttentionBlock};
    }
    for (size_t first = begin; first < shared; first += kAttentionBlock) {
        attend_spans(
            block_of(first, kAttentionBlock), std::span(spans).first(num_states), kernels, room);
    }
    size_t longest = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
        spans[i] = tokens[i];
        spans[i].num_positions -= shared;
        longest = std::max(longest, spans[i].num_positions);
    }
    attend_spans(block_of(shared, longest), std::span(spans).first(tokens.size()), kernels, room);
}

}  // namespace afd::ops
