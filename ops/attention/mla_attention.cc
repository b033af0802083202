// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/mla_attention.h"

#include <algorithm>
#include <array>

#include "ops/attention/batch_check.h"
#include "ops/attention/head_attention.h"
#include "ops/attention/latent_rows.h"
#include "ops/cpu/kernels.h"
#include "ops/linear/panel_loop.h"
#include "ops/tensor/task_cuts.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

size_t num_positions_of(const MlaAttentionRequest& request, size_t t) {
    return static_cast<size_t>(request.batch.positions[t]) + 1;
}

// The slots of one token's keys from position `first` on, as many as a block of the cache holds.
struct KeySlots {
    KeySlots(const MlaAttentionRequest& request, size_t t, size_t position)
        : first(static_cast<size_t>(request.batch.block_tables[t][position / kAttentionBlock]) *
                kAttentionBlock),
          count(std::min(kAttentionBlock, num_positions_of(request, t) - position)) {}

    size_t first;
    size_t count;
};

// Room for the keys of a block of a quantised cache, as the kernels read them.
struct ExpandedKeys {
    Bf16* ckv = nullptr;  // [kAttentionBlock, kv_lora_rank]
    Bf16* kr = nullptr;   // [kAttentionBlock, qk_rope_head_dim]
};

size_t groups_of_run_max(const MlaShape& s) {
    return groups_together_max(
        div_up(s.num_heads, cpu::kHeadsMax), s.kv_lora_rank, s.qk_rope_head_dim);
}

// Of one thread.
size_t thread_scratch_bytes(const MlaShape& s) {
    return groups_of_run_max(s) * heads_state_bytes(s.kv_lora_rank, s.qk_rope_head_dim) +
           workspace_bytes_of<Bf16>(kAttentionBlock * s.kv_lora_rank) +
           workspace_bytes_of<Bf16>(kAttentionBlock * s.qk_rope_head_dim);
}

// Part `index` of `count` equal ones of the weights of some heads. Those of a head lie in a row,
// and a part is of one head.
std::span<const std::byte> part_of(std::span<const PackedLinear> heads,
                                   size_t index,
                                   size_t count) {
    const size_t head_bytes = heads[0].size_bytes();
    const size_t bytes = heads.size() * head_bytes;
    const size_t part_bytes = std::min(bytes / count, head_bytes);
    const size_t begin = index * bytes / count;
    const size_t offset = std::min(begin % head_bytes, head_bytes - part_bytes);
    return {heads[begin / head_bytes].panel_data(0) + offset, part_bytes};
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

// Tokens of a task at most: the first keys of all but the first one are fetched while the one
// before is computed.
constexpr size_t kTokensPerTask = 4;

class Attention {
  public:
    Attention(const MlaAttentionRequest& request,
              std::span<std::byte> workspace,
              unsigned num_threads)
        : request_(request),
          w_(*request.weights),
          s_(w_.shape),
          kernels_(cpu::kernels(w_.weight_uv[0].numeric_class())),
          num_tokens_(request.batch.num_tokens),
          thread_bytes_(thread_scratch_bytes(s_)) {
        WorkspaceCursor cursor(workspace);
        const size_t latent_cols = s_.num_heads * s_.kv_lora_rank;
        latent_ = make_rows(cursor.take<Bf16>(num_tokens_ * latent_cols), num_tokens_, latent_cols);
        scratch_ = cursor.take<std::byte>(num_threads * thread_bytes_);
        // All heads of a token on one thread, so that its cache rows come from memory once; but
        // where tokens are fewer than threads, groups of heads go to all of them.
        is_split_ = num_tokens_ < num_threads;
        const bool is_narrow = is_split_ && s_.num_heads < cpu::kHeadsMax * num_threads;
        heads_per_group_ = is_narrow ? kHeadsPerTask : cpu::kHeadsMax;
        num_groups_ = div_up(s_.num_heads, heads_per_group_);
        if (request.cache.dtype != KvDtype::kBf16) {
            const size_t most = groups_of_run_max(s_);
            groups_together_ =
                is_split_ ? groups_together(num_groups_, most, num_tokens_, num_threads) : most;
        }
        shares_keys_ = num_groups_ == 1 && request.query.stride == request.query.num_cols &&
                       request.query_rope.stride == request.query_rope.num_cols;
    }

    void run(Parallel& parallel) const {
        // Few rows are weighed as if they were more: reading the weights is their cost, not
        // multiplying.
        const size_t expand_products =
            std::max(num_tokens_, kMemoryBoundRows) * latent_.num_cols * s_.v_head_dim;
        const size_t products =
            count_products(request_) + (expands_at_once() ? expand_products : 0);
        if (is_split_) {
            const size_t num_runs = div_up(num_groups_, groups_together_);
            const auto attend_run = [&](size_t task, unsigned thread) {
                const size_t first = task % num_runs * groups_together_;
                attend({task / num_runs, first, groups_from(first), true, false}, thread);
            };
            run_where_it_pays(parallel, num_tokens_ * num_runs, products, attend_run);
        } else {
            const TaskCuts cuts(num_tokens_, 1, parallel.num_threads(), kTokensPerTask);
            run_where_it_pays(
                parallel, cuts.num_tasks(), products, [&](size_t task, unsigned thread) {
                    attend_tokens(cuts.range(task), thread);
                });
        }
        if (expands_at_once()) return;
        run_where_it_pays(parallel, s_.num_heads, expand_products, [&](size_t head, unsigned) {
            expand_head(head);
        });
    }

  private:
    // Groups of heads of one token that go over its keys together.
    struct GroupRun {
        size_t token;
        size_t first;
        size_t count;
        bool is_cold;   // Nobody has fetched its first keys.
        bool leads_on;  // The next token's are fetched towards the end.
    };

    // A single token's heads are expanded by the thread that has them, which fetches their weights
    // during its last sums (47 instead of 58 us for 300 positions, cold, on two threads); those of
    // several tokens once for all, so that their weights are read once.
    bool expands_at_once() const { return num_tokens_ == 1; }

    void attend_tokens(TaskCuts::Range tokens, unsigned thread) const {
        const auto [first, last] = tokens;
        for (size_t token = first; token < last; ++token) {
            const size_t together =
                shares_keys_ ? tokens_together(request_.batch, s_.num_heads, token, last) : 1;
            if (together > 1) {
                attend_shared(token, together, token == first, thread);
                token += together - 1;
                continue;
            }
            for (size_t group = 0; group < num_groups_; group += groups_together_) {
                const size_t count = groups_from(group);
                const bool is_cold = token == first && group == 0;
                const bool leads_on = token + 1 < last && group + count == num_groups_;
                attend({token, group, count, is_cold, leads_on}, thread);
            }
        }
    }

    size_t groups_from(size_t first) const {
        return std::min(groups_together_, num_groups_ - first);
    }

    ExpandedKeys take_expanded(WorkspaceCursor& cursor) const {
        return {cursor.take<Bf16>(kAttentionBlock * s_.kv_lora_rank),
                cursor.take<Bf16>(kAttentionBlock * s_.qk_rope_head_dim)};
    }

    // The first `num_positions` keys of `slots`. Quantised ones are expanded to `room`, where they
    // stay until the next block.
    cpu::AttendBlock keys_of(const KeySlots& slots,
                             size_t num_positions,
                             const ExpandedKeys& room) const {
        const LatentCache& cache = request_.cache;
        cpu::AttendBlock block{.num_positions = num_positions, .scale = w_.softmax_scale};
        if (cache.dtype == KvDtype::kBf16) {
            block.ckv = cache.ckv + slots.first * s_.kv_lora_rank;
            block.kr = cache.kr + slots.first * s_.qk_rope_head_dim;
            return block;
        }
        LatentRows(cache, s_.kv_lora_rank, s_.qk_rope_head_dim)
            .expand(slots.first, num_positions, room.ckv, room.kr);
        block.ckv = room.ckv;
        block.kr = room.kr;
        return block;
    }

    // What the kernels fetch meanwhile. They know bf16 rows only.
    void set_next(const KeySlots& slots, cpu::AttendBlock& block) const {
        if (request_.cache.dtype != KvDtype::kBf16) return;
        block.next_ckv = request_.cache.ckv + slots.first * s_.kv_lora_rank;
        block.next_kr = request_.cache.kr + slots.first * s_.qk_rope_head_dim;
        block.num_next = slots.count;
    }

    // All heads of `count` tokens that have their keys in common.
    void attend_shared(size_t token, size_t count, bool is_cold, unsigned thread) const {
        WorkspaceCursor own({scratch_ + thread * thread_bytes_, thread_bytes_});
        cpu::HeadsState heads = take_heads_state(s_.kv_lora_rank, s_.qk_rope_head_dim, own);
        heads.num_heads = count * s_.num_heads;
        const ExpandedKeys room = take_expanded(own);
        std::array<size_t, cpu::kHeadsMax> num_positions;
        for (size_t i = 0; i < count; ++i) {
            num_positions[i] = num_positions_of(request_, token + i);
        }
        const auto block_of = [&](size_t first, size_t num_keys) {
            cpu::AttendBlock block = keys_of({request_, token, first}, num_keys, room);
            block.is_cold = first == 0 && is_cold;
            if (first + kAttentionBlock < num_positions[0]) {
                set_next({request_, token, first + kAttentionBlock}, block);
            }
            return block;
        };
        attend_together(
            {.query = request_.query.row(token), .query_rope = request_.query_rope.row(token)},
            std::span(num_positions.data(), count),
            kernels_,
            heads,
            block_of,
            latent_.row(token));
    }

    // The keys of each block are expanded once for all groups of the run.
    void attend(const GroupRun& run, unsigned thread) const {
        WorkspaceCursor own({scratch_ + thread * thread_bytes_, thread_bytes_});
        std::array<cpu::HeadsState, kGroupsTogetherMax> heads;
        for (size_t i = 0; i < run.count; ++i) {
            heads[i] = take_heads_state(s_.kv_lora_rank, s_.qk_rope_head_dim, own);
            heads[i].num_heads = heads_of(run.first + i);
            const size_t first_head = (run.first + i) * heads_per_group_;
            begin_with_sinks({.query = request_.query.row(run.token) + first_head * s_.kv_lora_rank,
                              .query_rope = request_.query_rope.row(run.token) +
                                            first_head * s_.qk_rope_head_dim},
                             kernels_,
                             heads[i]);
        }
        const ExpandedKeys room = take_expanded(own);
        const size_t end = num_positions_of(request_, run.token);
        for (size_t first = 0; first < end; first += kAttentionBlock) {
            cpu::AttendBlock block = block_of(run, first, room);
            for (size_t i = 0; i < run.count; ++i) {
                block.afterwards = fetched_after(run.token, run.first + i, first);
                kernels_.attend_block(block, heads[i]);
            }
        }
        for (size_t i = 0; i < run.count; ++i) {
            const size_t first_head = (run.first + i) * heads_per_group_;
            kernels_.finish_heads(heads[i], latent_.row(run.token) + first_head * s_.kv_lora_rank);
            for (size_t h = 0; expands_at_once() && h < heads[i].num_heads; ++h) {
                expand_head(first_head + h);
            }
        }
    }

    size_t heads_of(size_t group) const {
        return std::min(heads_per_group_, s_.num_heads - group * heads_per_group_);
    }

    // The block of positions from `first` on, and the keys that are fetched while it is computed.
    cpu::AttendBlock block_of(const GroupRun& run, size_t first, const ExpandedKeys& room) const {
        const KeySlots slots(request_, run.token, first);
        cpu::AttendBlock block = keys_of(slots, slots.count, room);
        block.is_cold = first == 0 && run.is_cold;
        if (first + slots.count < num_positions_of(request_, run.token)) {
            set_next({request_, run.token, first + kAttentionBlock}, block);
        } else if (run.leads_on) {
            set_next({request_, run.token + 1, 0}, block);
        }
        return block;
    }

    // weight_uv: those of the group's own heads, or of all heads a part for each group and token.
    std::span<const std::byte> fetched_after(size_t token, size_t group, size_t first) const {
        const std::span all(w_.weight_uv);
        const size_t index = first / kAttentionBlock;
        const size_t count = div_up(num_positions_of(request_, token), kAttentionBlock);
        if (expands_at_once()) {
            return part_of(all.subspan(group * heads_per_group_, heads_of(group)), index, count);
        }
        const size_t place = token * num_groups_ + group;
        return part_of(all, place * count + index, num_tokens_ * num_groups_ * count);
    }

    void expand_head(size_t head) const {
        SerialParallel serial;
        linear(latent_.columns(head * s_.kv_lora_rank, s_.kv_lora_rank),
               w_.weight_uv[head],
               request_.out.columns(head * s_.v_head_dim, s_.v_head_dim),
               serial);
    }

    const MlaAttentionRequest& request_;
    const MlaWeights& w_;
    const MlaShape& s_;
    const cpu::Kernels& kernels_;
    const size_t num_tokens_;
    const size_t thread_bytes_;  // Of scratch_, for each thread.
    Rows<Bf16> latent_;          // [num_tokens, heads · kv_lora_rank]
    std::byte* scratch_ = nullptr;
    bool is_split_ = false;
    size_t heads_per_group_ = 0;
    size_t num_groups_ = 0;  // Of a token.
    size_t groups_together_ = 1;
    bool shares_keys_ = false;  // The heads of tokens that follow each other lie in a row.
};

}  // namespace

size_t mla_attention_workspace_bytes(const MlaShape& s,
                                     size_t num_tokens_max,
                                     unsigned num_threads) {
    return workspace_bytes_of<Bf16>(num_tokens_max * s.num_heads * s.kv_lora_rank) +
           num_threads * thread_scratch_bytes(s);
}

Result<> mla_attention(const MlaAttentionRequest& request,
                       std::span<std::byte> workspace,
                       Parallel& parallel) {
    AFD_TRY(check_block_tables(request.batch, request.cache.num_slots));
    assert_shapes(request);
    if (request.batch.num_tokens == 0) return {};
    Attention(request, workspace, parallel.num_threads()).run(parallel);
    return {};
}

}  // namespace afd::ops
