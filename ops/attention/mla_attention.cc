// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/mla_attention.h"

#include <algorithm>
#include <array>

#include "ops/attention/batch_check.h"
#include "ops/attention/head_attention.h"
#include "ops/attention/latent_rows.h"
#include "ops/cpu/kernels.h"
#include "ops/linear/panel_loop.h"
#include "ops/tensor/round_up.h"
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

// Of any class, though only some go over several states at once: a workspace does not know its
// class.
size_t states_of_run_max(const MlaShape& s) {
    return states_together_max(s.kv_lora_rank, s.qk_rope_head_dim);
}

// Of one thread.
size_t thread_scratch_bytes(const MlaShape& s) {
    return states_of_run_max(s) * heads_state_bytes(s.kv_lora_rank, s.qk_rope_head_dim) +
           workspace_bytes_of<Bf16>(cpu::spans_room_elements(s.kv_lora_rank)) +
           workspace_bytes_of<Bf16>(kAttentionBlock * s.kv_lora_rank) +
           workspace_bytes_of<Bf16>(kAttentionBlock * s.qk_rope_head_dim);
}

std::span<const std::byte> bytes_part(std::span<const std::byte> bytes,
                                      size_t index,
                                      size_t count) {
    const size_t begin = index * bytes.size() / count;
    return bytes.subspan(begin, (index + 1) * bytes.size() / count - begin);
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
    AFD_ASSERT(request.query.num_rows == num_tokens && request.query.num_cols == s.latent_columns(),
               "query [%zu, %zu] for %zu tokens",
               request.query.num_rows,
               request.query.num_cols,
               num_tokens);
    AFD_ASSERT(request.query_rope.num_rows == num_tokens &&
                   request.query_rope.num_cols == s.rope_columns(),
               "query_rope [%zu, %zu]",
               request.query_rope.num_rows,
               request.query_rope.num_cols);
    AFD_ASSERT(request.out.num_rows == num_tokens && request.out.num_cols == s.value_columns(),
               "out [%zu, %zu]",
               request.out.num_rows,
               request.out.num_cols);
}

// Tokens of a task at most: the first keys of all but the first one are fetched while the one
// before is computed. Those of one sequence share their keys.
constexpr size_t kTokensPerTask = 4;
constexpr size_t kTokensPerSequenceTask = 16;

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
        latent_ = make_rows(
            cursor.take<Bf16>(num_tokens_ * s_.latent_columns()), num_tokens_, s_.latent_columns());
        scratch_ = cursor.take<std::byte>(num_threads * thread_bytes_);
        // All heads of a token on one thread, so that its cache rows come from memory once; but
        // where tokens are fewer than threads, groups of heads go to all of them.
        is_split_ = num_tokens_ < num_threads;
        const bool is_narrow = is_split_ && s_.num_heads < cpu::kHeadsMax * num_threads;
        heads_per_group_ = is_narrow ? kHeadsPerTask : cpu::kHeadsMax;
        num_groups_ = div_up(s_.num_heads, heads_per_group_);
        const bool has_spans = kernels_.attend_spans != nullptr;
        if (request.cache.dtype != KvDtype::kBf16 || has_spans) {
            const size_t most = groups_of_run_max(s_);
            groups_together_ =
                is_split_ ? groups_together(num_groups_, most, num_tokens_, num_threads) : most;
        }
        // The heads of tokens that follow each other lie in a row.
        const bool in_a_row = request.query.stride == request.query.num_cols &&
                              request.query_rope.stride == request.query_rope.num_cols;
        if (num_groups_ == 1 && in_a_row) tokens_per_state_ = cpu::kHeadsMax / s_.num_heads;
        const size_t num_states = has_spans ? states_of_run_max(s_) : 1;
        tokens_per_run_ = std::max<size_t>(num_states * tokens_per_state_ / num_groups_, 1);
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
            const TaskCuts cuts = task_cuts(parallel.num_threads());
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

    TaskCuts task_cuts(unsigned num_threads) const {
        const bool has_runs = kernels_.attend_spans != nullptr &&
                              tokens_together(request_.batch, tokens_per_run_, 0, num_tokens_) > 1;
        if (!has_runs) return {num_tokens_, 1, num_threads, kTokensPerTask};
        return {num_tokens_,
                std::min(tokens_per_run_, num_tokens_ / num_threads),
                num_threads,
                std::max(tokens_per_run_, kTokensPerSequenceTask)};
    }

    void attend_tokens(TaskCuts::Range tokens, unsigned thread) const {
        const auto [first, last] = tokens;
        for (size_t token = first; token < last;) {
            const size_t count = tokens_together(request_.batch, tokens_per_run_, token, last);
            if (count > 1) {
                attend_tokens_together(token, count, token == first, thread);
            } else {
                attend_token(token, token == first, token + 1 < last, thread);
            }
            token += count;
        }
    }

    void attend_token(size_t token, bool is_first, bool leads_on, unsigned thread) const {
        for (size_t group = 0; group < num_groups_; group += groups_together_) {
            const size_t count = groups_from(group);
            attend({token,
                    group,
                    count,
                    is_first && group == 0,
                    leads_on && group + count == num_groups_},
                   thread);
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
        quantised_rows().expand(slots.first, num_positions, room.ckv, room.kr);
        block.ckv = room.ckv;
        block.kr = room.kr;
        return block;
    }

    LatentRows quantised_rows() const {
        return {request_.cache, s_.kv_lora_rank, s_.qk_rope_head_dim};
    }

    // What the kernels fetch meanwhile.
    void set_next(const KeySlots& slots, cpu::AttendBlock& block) const {
        if (request_.cache.dtype != KvDtype::kBf16) {
            block.afterwards = quantised_rows().bytes(slots.first, slots.count);
            return;
        }
        block.next_ckv = request_.cache.ckv + slots.first * s_.kv_lora_rank;
        block.next_kr = request_.cache.kr + slots.first * s_.qk_rope_head_dim;
        block.num_next = slots.count;
    }

    // All heads of `count` tokens that have their keys in common.
    void attend_tokens_together(size_t token, size_t count, bool is_cold, unsigned thread) const {
        WorkspaceCursor own({scratch_ + thread * thread_bytes_, thread_bytes_});
        std::array<cpu::HeadsState, kGroupsTogetherMax> states;
        std::array<cpu::HeadsSpan, cpu::kHeadsSpansMax> spans;
        std::array<Bf16*, kGroupsTogetherMax> latents;
        size_t num_states = 0;
        size_t num_spans = 0;
        for (size_t t = token; t < token + count; t += tokens_per_state_) {
            const size_t num_tokens = std::min(tokens_per_state_, token + count - t);
            for (size_t group = 0; group < num_groups_; ++group) {
                const size_t num_heads = heads_of(group);
                cpu::HeadsState& state = states[num_states];
                state = begin_state(t, group, num_tokens * num_heads, own);
                latents[num_states++] = latent_of(t, group);
                for (size_t i = 0; i < num_tokens; ++i) {
                    spans[num_spans++] = {&state,
                                          i * num_heads,
                                          (i + 1) * num_heads,
                                          num_positions_of(request_, t + i)};
                }
            }
        }
        const ExpandedKeys room = take_expanded(own);
        attend_together(
            std::span(spans).first(num_spans),
            0,
            kernels_,
            take_spans_room(own),
            [&](size_t first, size_t num_keys) {
                const size_t last = token + count - 1;
                cpu::AttendBlock block = keys_of({request_, last, first}, num_keys, room);
                block.is_cold = first == 0 && is_cold;
                if (first + kAttentionBlock < spans[0].num_positions) {
                    set_next({request_, last, first + kAttentionBlock}, block);
                }
                return block;
            });
        for (size_t i = 0; i < num_states; ++i) kernels_.finish_heads(states[i], latents[i]);
    }

    // Of `num_heads` heads from a group's first one on.
    cpu::HeadsState begin_state(size_t token,
                                size_t group,
                                size_t num_heads,
                                WorkspaceCursor& cursor) const {
        cpu::HeadsState state = take_heads_state(s_.kv_lora_rank, s_.qk_rope_head_dim, cursor);
        state.num_heads = num_heads;
        const size_t first_head = group * heads_per_group_;
        begin_with_sinks(
            {.query = request_.query.row(token) + first_head * s_.kv_lora_rank,
             .query_rope = request_.query_rope.row(token) + first_head * s_.qk_rope_head_dim},
            kernels_,
            state);
        return state;
    }

    Bf16* latent_of(size_t token, size_t group) const {
        return latent_.row(token) + group * heads_per_group_ * s_.kv_lora_rank;
    }

    Bf16* take_spans_room(WorkspaceCursor& cursor) const {
        return cursor.take<Bf16>(cpu::spans_room_elements(s_.kv_lora_rank));
    }

    // The keys of each block are expanded once for all groups of the run.
    void attend(const GroupRun& run, unsigned thread) const {
        WorkspaceCursor own({scratch_ + thread * thread_bytes_, thread_bytes_});
        std::array<cpu::HeadsState, kGroupsTogetherMax> heads;
        std::array<cpu::HeadsSpan, kGroupsTogetherMax> spans;
        for (size_t i = 0; i < run.count; ++i) {
            heads[i] = begin_state(run.token, run.first + i, heads_of(run.first + i), own);
            spans[i] = {&heads[i], 0, heads[i].num_heads, 0};
        }
        const ExpandedKeys room = take_expanded(own);
        Bf16* const spans_room = take_spans_room(own);
        const size_t end = num_positions_of(request_, run.token);
        for (size_t first = 0; first < end; first += kAttentionBlock) {
            cpu::AttendBlock block = block_of(run, first, room);
            // Rows that are to be expanded come first; weights have the last block only.
            const std::span<const std::byte> rows = block.afterwards;
            if (run.count > 1 && kernels_.attend_spans != nullptr) {
                if (rows.empty()) {
                    block.afterwards = fetched_after(run.token, run.first, run.count, first);
                }
                for (size_t i = 0; i < run.count; ++i) spans[i].num_positions = block.num_positions;
                kernels_.attend_spans(block, std::span(spans).first(run.count), spans_room);
                continue;
            }
            for (size_t i = 0; i < run.count; ++i) {
                block.afterwards = rows.empty() ? fetched_after(run.token, run.first + i, 1, first)
                                                : bytes_part(rows, i, run.count);
                kernels_.attend_block(block, heads[i]);
            }
        }
        for (size_t i = 0; i < run.count; ++i) {
            kernels_.finish_heads(heads[i], latent_of(run.token, run.first + i));
            const size_t first_head = (run.first + i) * heads_per_group_;
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

    // weight_uv: those of the own heads of `num_groups` groups, or of all heads a part for each
    // such number of groups and token. Each block of a bf16 cache gets a slice of them; of another
    // cache only the last block asks, and gets all, of one head at most.
    std::span<const std::byte> fetched_after(size_t token,
                                             size_t group,
                                             size_t num_groups,
                                             size_t first) const {
        const std::span all(w_.weight_uv);
        const bool is_sliced = request_.cache.dtype == KvDtype::kBf16;
        const size_t index = is_sliced ? first / kAttentionBlock : 0;
        const size_t count =
            is_sliced ? div_up(num_positions_of(request_, token), kAttentionBlock) : 1;
        if (expands_at_once()) {
            const size_t first_head = group * heads_per_group_;
            const size_t last_head =
                std::min(first_head + num_groups * heads_per_group_, s_.num_heads);
            return part_of(all.subspan(first_head, last_head - first_head), index, count);
        }
        const size_t runs = div_up(num_groups_, num_groups);
        const size_t place = token * runs + group / num_groups;
        return part_of(all, place * count + index, num_tokens_ * runs * count);
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
    size_t tokens_per_state_ = 1;
    size_t tokens_per_run_ = 1;  // That go over their keys together.
};

}  // namespace

size_t mla_attention_workspace_bytes(const MlaShape& s,
                                     size_t num_tokens_max,
                                     unsigned num_threads) {
    return workspace_bytes_of<Bf16>(num_tokens_max * s.latent_columns()) +
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
