// SPDX-License-Identifier: Apache-2.0

#include "ops/mla_attention.h"

#include <algorithm>
#include <string>

#include "ops/cpu/kernels.h"
#include "ops/head_attention.h"
#include "ops/panel_loop.h"
#include "ops/workspace.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

Result<void> check_batch(const MlaAttentionRequest& request) {
    const int64_t num_blocks = static_cast<int64_t>(request.cache.num_slots / kAttentionBlock);
    for (size_t t = 0; t < request.batch.num_tokens; ++t) {
        const int32_t position = request.batch.positions[t];
        if (position < 0) {
            return Error{Code::kInvalidArgument,
                         "positions[" + std::to_string(t) + "] is " + std::to_string(position) +
                             "; it must not be negative"};
        }
        const size_t last_block = static_cast<size_t>(position) / kAttentionBlock;
        for (size_t block = 0; block <= last_block; ++block) {
            const int32_t index = request.batch.block_tables[t][block];
            if (index >= 0 && index < num_blocks) continue;
            return Error{Code::kInvalidArgument,
                         "block_tables[" + std::to_string(t) + "][" + std::to_string(block) +
                             "] is " + std::to_string(index) + "; the cache has " +
                             std::to_string(num_blocks) + " blocks"};
        }
    }
    return {};
}

// Heads [first_head, first_head + state.num_heads) of token t.
void attend(const MlaAttentionRequest& request,
            const cpu::Kernels& kernels,
            size_t t,
            size_t first_head,
            const cpu::HeadsState& state,
            Rows<Bf16> latent_out) {
    const LatentCache& cache = request.cache;
    const size_t latent = state.latent;
    const size_t rope_dim = state.rope;
    const size_t num_positions = static_cast<size_t>(request.batch.positions[t]) + 1;
    const auto row_of_block = [&](size_t first) {
        const int32_t block = request.batch.block_tables[t][first / kAttentionBlock];
        return static_cast<size_t>(block) * kAttentionBlock;
    };
    const auto block_of = [&](size_t first, size_t count) {
        cpu::AttendBlock block{.ckv = cache.ckv + row_of_block(first) * latent,
                               .kr = cache.kr + row_of_block(first) * rope_dim,
                               .num_positions = count,
                               .scale = request.weights->softmax_scale,
                               .is_cold = first == 0};
        const size_t next = first + kAttentionBlock;
        if (next < num_positions) {
            block.next_ckv = cache.ckv + row_of_block(next) * latent;
            block.next_kr = cache.kr + row_of_block(next) * rope_dim;
        }
        return block;
    };
    attend_positions({.query = request.query.row(t) + first_head * latent,
                      .query_rope = request.query_rope.row(t) + first_head * rope_dim},
                     num_positions,
                     kernels,
                     state,
                     block_of,
                     latent_out.row(t) + first_head * latent);
}

// Scores and weighted sums of all tokens.
size_t count_products(const MlaAttentionRequest& request) {
    const MlaShape& s = request.weights->shape;
    size_t num_scores = 0;
    for (size_t t = 0; t < request.batch.num_tokens; ++t) {
        num_scores += static_cast<size_t>(request.batch.positions[t]) + 1;
    }
    return num_scores * s.num_heads * (2 * s.kv_lora_rank + s.qk_rope_head_dim);
}

void assert_shapes(const MlaAttentionRequest& request) {
    const MlaShape& s = request.weights->shape;
    const size_t num_tokens = request.batch.num_tokens;
    AFD_ASSERT(request.query.num_rows == num_tokens &&
                   request.query.num_cols == s.num_heads * s.kv_lora_rank,
               "query [%zu, %zu] for %zu tokens",
               request.query.num_rows,
               request.query.num_cols,
               num_tokens);
    AFD_ASSERT(request.query_rope.num_rows == num_tokens &&
                   request.query_rope.num_cols == s.num_heads * s.qk_rope_head_dim,
               "query_rope [%zu, %zu]",
               request.query_rope.num_rows,
               request.query_rope.num_cols);
    AFD_ASSERT(
        request.out.num_rows == num_tokens && request.out.num_cols == s.num_heads * s.v_head_dim,
        "out [%zu, %zu]",
        request.out.num_rows,
        request.out.num_cols);
}

}  // namespace

size_t mla_attention_workspace_bytes(const MlaShape& s,
                                     size_t num_tokens_max,
                                     unsigned num_threads) {
    return workspace_bytes_of<Bf16>(num_tokens_max * s.num_heads * s.kv_lora_rank) +
           num_threads * heads_state_bytes(s.kv_lora_rank, s.qk_rope_head_dim);
}

Result<void> mla_attention(const MlaAttentionRequest& request,
                           std::span<std::byte> workspace,
                           Parallel& parallel) {
    AFD_TRY(check_batch(request));
    assert_shapes(request);
    const MlaWeights& w = *request.weights;
    const MlaShape& s = w.shape;
    const size_t num_tokens = request.batch.num_tokens;
    if (num_tokens == 0) return {};
    const cpu::Kernels& kernels = cpu::kernels(w.weight_uv[0].numeric_class());
    WorkspaceCursor cursor(workspace);
    const size_t latent_cols = s.num_heads * s.kv_lora_rank;
    const Rows<Bf16> latent =
        make_rows(cursor.take<Bf16>(num_tokens * latent_cols), num_tokens, latent_cols);
    const size_t thread_bytes = heads_state_bytes(s.kv_lora_rank, s.qk_rope_head_dim);
    std::byte* scratch = cursor.take<std::byte>(parallel.num_threads() * thread_bytes);

    // All heads of a token on one thread, so that its cache rows come from memory once; but where
    // tokens are fewer than threads, groups of heads go to all of them.
    const unsigned num_threads = parallel.num_threads();
    const bool is_split = num_tokens < num_threads;
    const bool is_narrow = is_split && s.num_heads < cpu::kHeadsMax * num_threads;
    const size_t heads_per_group = is_narrow ? kHeadsPerTask : cpu::kHeadsMax;
    const size_t groups_per_token = div_up(s.num_heads, heads_per_group);
    const size_t groups_per_task = is_split ? 1 : groups_per_token;
    const size_t tasks_per_token = groups_per_token / groups_per_task;
    const auto expand_head = [&](size_t head) {
        SerialParallel serial;
        linear(latent.columns(head * s.kv_lora_rank, s.kv_lora_rank),
               w.weight_uv[head],
               request.out.columns(head * s.v_head_dim, s.v_head_dim),
               serial);
    };
    // A single token's heads are expanded by the thread that has them; those of several tokens once
    // for all, so that their weights are read once.
    const bool expands_at_once = num_tokens == 1;
    const auto attend_task = [&](size_t task, unsigned thread) {
        WorkspaceCursor own({scratch + thread * thread_bytes, thread_bytes});
        cpu::HeadsState heads = take_heads_state(s.kv_lora_rank, s.qk_rope_head_dim, own);
        const size_t first_group = task % tasks_per_token * groups_per_task;
        for (size_t group = first_group; group < first_group + groups_per_task; ++group) {
            const size_t first_head = group * heads_per_group;
            heads.num_heads = std::min(heads_per_group, s.num_heads - first_head);
            attend(request, kernels, task / tasks_per_token, first_head, heads, latent);
            for (size_t h = 0; expands_at_once && h < heads.num_heads; ++h) {
                expand_head(first_head + h);
            }
        }
    };
    const size_t expand_products =
        std::max(num_tokens, kMemoryBoundRows) * latent_cols * s.v_head_dim;
    run_where_it_pays(parallel,
                      num_tokens * tasks_per_token,
                      count_products(request) + (expands_at_once ? expand_products : 0),
                      attend_task);
    if (expands_at_once) return {};
    run_where_it_pays(
        parallel, s.num_heads, expand_products, [&](size_t head, unsigned) { expand_head(head); });
    return {};
}

}  // namespace afd::ops
