// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/gqa_attention.h"

#include <algorithm>
#include <array>

#include "ops/attention/batch_check.h"
#include "ops/attention/grouped_rows.h"
#include "ops/attention/head_attention.h"
#include "ops/cpu/kernels.h"
#include "ops/linear/panel_loop.h"
#include "ops/tensor/round_up.h"
#include "ops/tensor/task_cuts.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

constexpr size_t kGqaTokensPerTask = 4;
// Of one sequence.
constexpr size_t kGqaTokensPerSequenceTask = 64;

void assert_gqa_attention(const GqaAttentionRequest& request) {
    const size_t num_tokens = request.batch.num_tokens;
    const size_t columns = request.shape.query_columns();
    AFD_ASSERT(request.query.num_rows == num_tokens && request.query.num_cols == columns,
               "query [%zu, %zu] for %zu tokens",
               request.query.num_rows,
               request.query.num_cols,
               num_tokens);
    AFD_ASSERT(request.out.num_rows == num_tokens && request.out.num_cols == columns,
               "out [%zu, %zu]",
               request.out.num_rows,
               request.out.num_cols);
    AFD_ASSERT(request.cache.key_order == KeyOrder::kRows ||
                   best_key_order(request.numeric_class, request.shape, request.cache.dtype) ==
                       KeyOrder::kPairs,
               "keys of %zu elements in pairs",
               request.shape.head_dim);
    AFD_ASSERT(request.sinks.empty() || request.sinks.size() == request.shape.num_heads,
               "%zu sinks for %zu heads",
               request.sinks.size(),
               request.shape.num_heads);
}

size_t parts_of_group(const GqaShape& shape) {
    return div_up(shape.group_size(), cpu::kHeadsMax);
}

// Of parts, those that go over a token's blocks together at most.
size_t parts_of_run_max(const GqaShape& shape) {
    return groups_together_max(shape.num_kv_heads * parts_of_group(shape), shape.head_dim, 0);
}

size_t states_of_run_max(const GqaShape& shape) {
    return states_together_max(shape.head_dim, 0);
}

// Of one thread: the states of a run, queries or results of one in a row, ExpandedRows, and the
// room that spans need.
size_t thread_bytes(const GqaShape& shape) {
    return states_of_run_max(shape) * heads_state_bytes(shape.head_dim, 0) +
           workspace_bytes_of<Bf16>(cpu::spans_room_elements(shape.head_dim)) +
           workspace_bytes_of<Bf16>(cpu::kHeadsMax * shape.head_dim) +
           ExpandedRows::num_bytes(shape);
}

class GroupedAttention {
  public:
    GroupedAttention(const GqaAttentionRequest& request,
                     std::span<std::byte> workspace,
                     unsigned num_threads)
        : request_(request),
          s_(request.shape),
          rows_(request.cache, request.shape, request.softmax_scale),
          kernels_(cpu::kernels(request.numeric_class)),
          thread_bytes_(thread_bytes(s_)),
          parts_(parts_of_group(s_)),
          num_parts_(s_.num_kv_heads * parts_),
          tokens_per_state_(std::max<size_t>(cpu::kHeadsMax / s_.group_size(), 1)) {
        const size_t num_states =
            kernels_.attend_spans != nullptr ? states_of_run_max(s_) : size_t{1};
        tokens_per_run_ = std::max<size_t>(num_states * tokens_per_state_ / parts_, 1);
        WorkspaceCursor cursor(workspace);
        scratch_ = cursor.take<std::byte>(num_threads * thread_bytes_);
    }

    void run(Parallel& parallel) const {
        const size_t num_tokens = request_.batch.num_tokens;
        const size_t products = count_products();
        // Groups of heads share no keys, so where tokens are fewer than threads nothing is read
        // twice.
        if (num_tokens < parallel.num_threads()) {
            const size_t count = groups_together(
                num_parts_, parts_of_run_max(s_), num_tokens, parallel.num_threads());
            const size_t num_runs = div_up(num_parts_, count);
            run_where_it_pays(
                parallel, num_tokens * num_runs, products, [&](size_t task, unsigned thread) {
                    attend(task / num_runs, run_from(task % num_runs * count, count), thread);
                });
            return;
        }
        const TaskCuts cuts = task_cuts(parallel.num_threads());
        run_where_it_pays(parallel, cuts.num_tasks(), products, [&](size_t task, unsigned thread) {
            attend_tokens(cuts.range(task), thread);
        });
    }

  private:
    // Parts of one token's heads that go over its blocks together: the keys of a block's heads
    // follow each other, and so do its values, so that all is read in order.
    struct PartRun {
        size_t first;
        size_t count;
    };

    PartRun run_from(size_t first, size_t most) const {
        return {first, std::min(most, num_parts_ - first)};
    }

    TaskCuts task_cuts(unsigned num_threads) const {
        const size_t num_tokens = request_.batch.num_tokens;
        const bool is_sequence =
            kernels_.attend_spans != nullptr && share_passes(0, num_tokens).count > 1;
        if (!is_sequence) return {num_tokens, 1, num_threads, kGqaTokensPerTask};
        const size_t smallest =
            std::min({tokens_per_run_, kGqaTokensPerSequenceTask, num_tokens / num_threads});
        return {num_tokens, smallest, num_threads, kGqaTokensPerSequenceTask};
    }

    void attend_tokens(TaskCuts::Range tokens, unsigned thread) const {
        const auto [first, last] = tokens;
        for (size_t t = first; t < last;) {
            const size_t count = num_of_sequence(t, last);
            if (count > 1) {
                attend_sequence({t, t + count}, thread);
            } else {
                const size_t most = parts_of_run_max(s_);
                for (size_t part = 0; part < num_parts_; part += most) {
                    attend(t, run_from(part, most), thread);
                }
            }
            t += count;
        }
    }

    // A group's keys for all of these tokens: they stay in the cache of the core.
    void attend_sequence(TaskCuts::Range tokens, unsigned thread) const {
        const auto [first, last] = tokens;
        for (size_t kv_head = 0; kv_head < s_.num_kv_heads; ++kv_head) {
            for (size_t t = first; t < last;) {
                const SharedPasses passes = share_passes(t, last);
                if (passes.count > 1) {
                    attend_tokens_together(t, passes, kv_head, thread);
                } else {
                    for (size_t i = 0; i < parts_; ++i) {
                        attend(t, {kv_head * parts_ + i, 1}, thread);
                    }
                }
                t += passes.count;
            }
        }
    }

    // Tokens from t on, before `last`, that read the same cache.
    size_t num_of_sequence(size_t t, size_t last) const {
        const int32_t* const* tables = request_.batch.block_tables;
        size_t end = t + 1;
        while (end < last && tables[end] == tables[t]) ++end;
        return end - t;
    }

    size_t count_products() const {
        size_t num_scores = 0;
        for (size_t t = 0; t < request_.batch.num_tokens; ++t) {
            num_scores += num_positions(t) - first_position(t);
        }
        return num_scores * 2 * s_.query_columns();
    }

    size_t num_positions(size_t t) const {
        return static_cast<size_t>(request_.batch.positions[t]) + 1;
    }

    // The first that the token sees.
    size_t first_position(size_t t) const {
        const size_t count = num_positions(t);
        return request_.window == 0 || count <= request_.window ? 0 : count - request_.window;
    }

    // Tokens that share their passes over the keys, and the first position of these passes, at the
    // begin of a block. Of a single token `begin` says nothing.
    struct SharedPasses {
        size_t count;
        size_t begin;
    };

    // Of the tokens from t on, before `last`.
    SharedPasses share_passes(size_t t, size_t last) const {
        const size_t most = tokens_together(request_.batch, tokens_per_run_, t, last);
        const size_t block = first_block(t);
        size_t count = 1;
        while (count < most && first_block(t + count) == block) ++count;
        size_t num_whole = 0;  // Tokens that see their first block from its begin on.
        while (num_whole < count && first_position(t + num_whole) == block * kAttentionBlock) {
            ++num_whole;
        }
        const bool has_runs = kernels_.attend_spans != nullptr;
        const bool has_further_blocks = block < (num_positions(t) - 1) / kAttentionBlock;
        if (has_runs && has_further_blocks) {
            // Windows that have moved begin elsewhere for each, but in one block: each token passes
            // over that one by itself, and all go on together.
            return {count, (num_whole == count ? block : block + 1) * kAttentionBlock};
        }
        // Only tokens that see everything before them.
        return {block == 0 ? std::max<size_t>(num_whole, 1) : 1, 0};
    }

    size_t first_block(size_t t) const { return first_position(t) / kAttentionBlock; }

    // A part is at most cpu::kHeadsMax heads of one group.
    size_t kv_head_of(size_t part) const { return part / parts_; }

    size_t first_head_of(size_t part) const {
        return kv_head_of(part) * s_.group_size() + part % parts_ * cpu::kHeadsMax;
    }

    void attend(size_t t, PartRun run, unsigned thread) const {
        WorkspaceCursor own({scratch_ + thread * thread_bytes_, thread_bytes_});
        std::array<cpu::HeadsState, kGroupsTogetherMax> heads;
        for (size_t i = 0; i < run.count; ++i) {
            const size_t part = run.first + i;
            const size_t first_head = first_head_of(part);
            heads[i] = take_heads_state(s_.head_dim, 0, own);
            heads[i].num_heads =
                std::min(cpu::kHeadsMax, (kv_head_of(part) + 1) * s_.group_size() - first_head);
            begin_with_sinks(
                {.query = request_.query.row(t) + first_head * s_.head_dim,
                 .query_rope = nullptr,
                 .sinks = request_.sinks.empty() ? nullptr : &request_.sinks[first_head]},
                kernels_,
                heads[i]);
        }
        const ExpandedRows room(s_, own);
        const size_t end = num_positions(t);
        for (size_t first = first_position(t); first < end;) {
            const size_t count = std::min(kAttentionBlock - first % kAttentionBlock, end - first);
            for (size_t i = 0; i < run.count; ++i) {
                const bool is_last = i + 1 == run.count;
                const HeadRows next = is_last ? rows_from(t, kv_head_of(run.first), first + count)
                                              : rows_from(t, kv_head_of(run.first + i + 1), first);
                const bool is_cold = first == first_position(t) && i == 0;
                const HeadRows rows = rows_from(t, kv_head_of(run.first + i), first);
                if (first % kAttentionBlock == 0 &&
                    rows_.stays_quantised(kernels_, heads[i].num_heads)) {
                    kernels_.attend_quantised(rows_.quantised_block(rows, next, room), heads[i]);
                } else {
                    kernels_.attend_block(rows_.block(rows, next, is_cold, room), heads[i]);
                }
            }
            first += count;
        }
        for (size_t i = 0; i < run.count; ++i) {
            kernels_.finish_heads(heads[i],
                                  request_.out.row(t) + first_head_of(run.first + i) * s_.head_dim);
        }
    }

    // A group's heads of tokens from t on that have their keys in common.
    void attend_tokens_together(size_t t,
                                SharedPasses passes,
                                size_t kv_head,
                                unsigned thread) const {
        const size_t count = passes.count;
        const size_t begin = passes.begin;
        WorkspaceCursor own({scratch_ + thread * thread_bytes_, thread_bytes_});
        std::array<cpu::HeadsState, kGroupsTogetherMax> states;
        std::array<cpu::HeadsSpan, cpu::kHeadsSpansMax> spans;
        std::array<HeadsOfTokens, kGroupsTogetherMax> heads;
        Bf16* const row = own.take<Bf16>(cpu::kHeadsMax * s_.head_dim);
        size_t num_states = 0;
        size_t num_spans = 0;
        for (size_t token = t; token < t + count; token += tokens_per_state_) {
            const size_t num_tokens = std::min(tokens_per_state_, t + count - token);
            for (size_t i = 0; i < parts_; ++i) {
                const HeadsOfTokens of = heads_of(token, num_tokens, kv_head * parts_ + i);
                cpu::HeadsState& state = states[num_states];
                state = begin_state(of, row, own);
                heads[num_states++] = of;
                for (size_t k = 0; k < num_tokens; ++k) {
                    spans[num_spans++] = {
                        &state, k * of.num_heads, (k + 1) * of.num_heads, num_positions(token + k)};
                }
            }
        }
        const ExpandedRows room(s_, own);
        for (size_t i = 0; i < num_spans; ++i) {
            const size_t first = first_position(t + i / parts_);
            if (first == begin) continue;
            cpu::HeadsSpan before = spans[i];
            before.num_positions = begin - first;
            // The first token sees all that the others see.
            const cpu::AttendBlock block =
                rows_.block({index_of(t, kv_head, first), before.num_positions}, {}, i == 0, room);
            kernels_.attend_block(block.of(before), *before.state);
        }
        attend_together(std::span(spans).first(num_spans),
                        begin,
                        kernels_,
                        own.take<Bf16>(cpu::spans_room_elements(s_.head_dim)),
                        [&](size_t first, size_t num_keys) {
                            return rows_.block({index_of(t, kv_head, first), num_keys},
                                               rows_from(t, kv_head, first + num_keys),
                                               first == begin,
                                               room);
                        });
        for (size_t i = 0; i < num_states; ++i) {
            kernels_.finish_heads(states[i], row);
            const size_t columns = heads[i].num_heads * s_.head_dim;
            for (size_t k = 0; k < heads[i].num_tokens; ++k) {
                std::copy_n(row + k * columns,
                            columns,
                            request_.out.row(heads[i].token + k) + heads[i].first * s_.head_dim);
            }
        }
    }

    // Some heads that tokens following each other have in one state.
    struct HeadsOfTokens {
        size_t token;
        size_t num_tokens;
        size_t first;
        size_t num_heads;  // Of each token.
    };

    HeadsOfTokens heads_of(size_t token, size_t num_tokens, size_t part) const {
        const size_t first = first_head_of(part);
        const size_t end = (kv_head_of(part) + 1) * s_.group_size();
        return {token, num_tokens, first, std::min(cpu::kHeadsMax, end - first)};
    }

    // row: room for the queries of a state.
    cpu::HeadsState begin_state(const HeadsOfTokens& heads,
                                Bf16* row,
                                WorkspaceCursor& cursor) const {
        cpu::HeadsState state = take_heads_state(s_.head_dim, 0, cursor);
        state.num_heads = heads.num_tokens * heads.num_heads;
        const size_t columns = heads.num_heads * s_.head_dim;
        std::array<float, cpu::kHeadsMax> sinks;
        for (size_t i = 0; i < heads.num_tokens; ++i) {
            std::copy_n(request_.query.row(heads.token + i) + heads.first * s_.head_dim,
                        columns,
                        row + i * columns);
            if (request_.sinks.empty()) continue;
            std::copy_n(&request_.sinks[heads.first], heads.num_heads, &sinks[i * heads.num_heads]);
        }
        begin_with_sinks({.query = row,
                          .query_rope = nullptr,
                          .sinks = request_.sinks.empty() ? nullptr : sinks.data()},
                         kernels_,
                         state);
        return state;
    }

    // Of the block's positions from `first` on that the token sees.
    HeadRows rows_from(size_t t, size_t kv_head, size_t first) const {
        const size_t end = num_positions(t);
        if (first >= end) return {};
        return {index_of(t, kv_head, first),
                std::min(kAttentionBlock - first % kAttentionBlock, end - first)};
    }

    size_t slot_of(size_t t, size_t position) const {
        const int32_t block = request_.batch.block_tables[t][position / kAttentionBlock];
        return static_cast<size_t>(block) * kAttentionBlock + position % kAttentionBlock;
    }

    size_t index_of(size_t t, size_t kv_head, size_t position) const {
        return gqa_row_index(s_, slot_of(t, position), kv_head);
    }

    const GqaAttentionRequest& request_;
    const GqaShape& s_;
    const GroupedRows rows_;
    const cpu::Kernels& kernels_;
    const size_t thread_bytes_;  // Of scratch_, for each thread.
    const size_t parts_;         // Of a group.
    const size_t num_parts_;
    const size_t tokens_per_state_;
    size_t tokens_per_run_ = 1;  // That go over their keys together.
    std::byte* scratch_ = nullptr;
};

}  // namespace

KeyOrder best_key_order(NumericClass numeric_class, const GqaShape& shape, KvDtype dtype) {
    const cpu::Kernels& kernels = cpu::kernels(numeric_class);
    const size_t least = kernels.key_pair_heads;
    const bool has_pairs = least > 0 && shape.group_size() >= least && shape.head_dim % 2 == 0;
    const bool stays_quantised = cpu::QuantisedBlock::takes(shape.head_dim) &&
                                 shape.group_size() <= kernels.quantised_heads_max.of(dtype);
    return has_pairs || stays_quantised ? KeyOrder::kPairs : KeyOrder::kRows;
}

size_t gqa_attention_workspace_bytes(const GqaShape& shape, unsigned num_threads) {
    return num_threads * thread_bytes(shape);
}

Result<> gqa_attention(const GqaAttentionRequest& request,
                       std::span<std::byte> workspace,
                       Parallel& parallel) {
    AFD_TRY(check_block_tables(request.batch, request.cache.num_slots));
    assert_gqa_attention(request);
    if (request.batch.num_tokens == 0) return {};
    GroupedAttention(request, workspace, parallel.num_threads()).run(parallel);
    return {};
}

}  // namespace afd::ops
