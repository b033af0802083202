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
size_t num_positions_of(const MlaAttentionRequest& request, size_t t) {
    return static_cast<size_t>(request.batch.positions[t]) + 1;
}

// The keys of one token from position `first` on, as many as a block of the cache holds.
struct Keys {
    Keys(const MlaAttentionRequest& request, size_t t, size_t first)
        : num_positions(std::min(kAttentionBlock, num_positions_of(request, t) - first)) {
        const MlaShape& s = request.weights->shape;
        const int32_t block = request.batch.block_tables[t][first / kAttentionBlock];
        const size_t row = static_cast<size_t>(block) * kAttentionBlock;
        ckv = request.cache.ckv + row * s.kv_lora_rank;
        kr = request.cache.kr + row * s.qk_rope_head_dim;
    }

    const Bf16* ckv;
    const Bf16* kr;
    size_t num_positions;
};

// Tokens of a task at most: the first keys of all but the first one are fetched while the one
// before is computed.
constexpr size_t kTokensPerTask = 4;

// Heads of one token. `next_token`, whose keys are fetched towards the end: the same one for none.
struct HeadsOfToken {
    size_t token;
    size_t first_head;
    bool is_cold;  // Nobody has fetched its first keys.
    size_t next_token;
};

void attend(const MlaAttentionRequest& request,
            const cpu::Kernels& kernels,
            const HeadsOfToken& task,
            const cpu::HeadsState& state,
            Rows<Bf16> latent_out) {
    const size_t num_positions = num_positions_of(request, task.token);
    const auto block_of = [&](size_t first, size_t count) {
        const Keys keys(request, task.token, first);
        cpu::AttendBlock block{.ckv = keys.ckv,
                               .kr = keys.kr,
                               .num_positions = count,
                               .scale = request.weights->softmax_scale,
                               .is_cold = first == 0 && task.is_cold};
        const bool is_last = first + count == num_positions;
        if (is_last && task.next_token == task.token) return block;
        const Keys next = is_last ? Keys(request, task.next_token, 0)
                                  : Keys(request, task.token, first + kAttentionBlock);
        block.next_ckv = next.ckv;
        block.next_kr = next.kr;
        block.num_next = next.num_positions;
        return block;
    };
    attend_positions(
        {.query = request.query.row(task.token) + task.first_head * state.latent,
         .query_rope = request.query_rope.row(task.token) + task.first_head * state.rope},
        num_positions,
        kernels,
        state,
        block_of,
        latent_out.row(task.token) + task.first_head * state.latent);
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
    const size_t tokens_per_task =
        std::clamp<size_t>(num_tokens / (2 * num_threads), 1, kTokensPerTask);
    const size_t num_tasks =
        is_split ? num_tokens * groups_per_token : div_up(num_tokens, tokens_per_task);
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
    const auto attend_heads = [&](HeadsOfToken task, unsigned thread) {
        WorkspaceCursor own({scratch + thread * thread_bytes, thread_bytes});
        cpu::HeadsState heads = take_heads_state(s.kv_lora_rank, s.qk_rope_head_dim, own);
        heads.num_heads = std::min(heads_per_group, s.num_heads - task.first_head);
        attend(request, kernels, task, heads, latent);
        for (size_t h = 0; expands_at_once && h < heads.num_heads; ++h) {
            expand_head(task.first_head + h);
        }
    };
    const auto attend_group = [&](size_t task, unsigned thread) {
        const size_t token = task / groups_per_token;
        const size_t first_head = task % groups_per_token * heads_per_group;
        attend_heads({token, first_head, true, token}, thread);
    };
    const auto attend_tokens = [&](size_t task, unsigned thread) {
        const size_t first = task * tokens_per_task;
        const size_t last = std::min(first + tokens_per_task, num_tokens);
        for (size_t token = first; token < last; ++token) {
            for (size_t head = 0; head < s.num_heads; head += heads_per_group) {
                const bool is_last = head + heads_per_group >= s.num_heads;
                const bool is_cold = token == first && head == 0;
                const size_t next = is_last && token + 1 < last ? token + 1 : token;
                attend_heads({token, head, is_cold, next}, thread);
            }
        }
    };
    const auto attend_task = [&](size_t task, unsigned thread) {
        is_split ? attend_group(task, thread) : attend_tokens(task, thread);
    };
    const size_t expand_products =
        std::max(num_tokens, kMemoryBoundRows) * latent_cols * s.v_head_dim;
    run_where_it_pays(parallel,
                      num_tasks,
                      count_products(request) + (expands_at_once ? expand_products : 0),
                      attend_task);
    if (expands_at_once) return {};
    run_where_it_pays(
        parallel, s.num_heads, expand_products, [&](size_t head, unsigned) { expand_head(head); });
    return {};
}

}  // namespace afd::ops
