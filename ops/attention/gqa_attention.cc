// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/gqa_attention.h"

#include <algorithm>

#include "ops/attention/batch_check.h"
#include "ops/attention/head_attention.h"
#include "ops/cpu/kernels.h"
#include "ops/linear/panel_loop.h"
#include "ops/tensor/task_cuts.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

constexpr size_t kGqaTokensPerTask = 4;

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
}

class GroupedAttention {
  public:
    GroupedAttention(const GqaAttentionRequest& request,
                     std::span<std::byte> workspace,
                     unsigned num_threads)
        : request_(request),
          s_(request.shape),
          kernels_(cpu::kernels(request.numeric_class)),
          thread_bytes_(heads_state_bytes(s_.head_dim, 0)),
          parts_(div_up(s_.group_size(), cpu::kHeadsMax)) {
        WorkspaceCursor cursor(workspace);
        scratch_ = cursor.take<std::byte>(num_threads * thread_bytes_);
    }

    void run(Parallel& parallel) const {
        const size_t num_tokens = request_.batch.num_tokens;
        const size_t num_parts = s_.num_kv_heads * parts_;
        const size_t products = count_products();
        // Groups of heads share no keys, so where tokens are fewer than threads nothing is read
        // twice.
        if (num_tokens < parallel.num_threads()) {
            run_where_it_pays(
                parallel, num_tokens * num_parts, products, [&](size_t task, unsigned thread) {
                    attend(task / num_parts, task % num_parts, thread);
                });
            return;
        }
        const TaskCuts cuts(num_tokens, 1, parallel.num_threads(), kGqaTokensPerTask);
        run_where_it_pays(parallel, cuts.num_tasks(), products, [&](size_t task, unsigned thread) {
            const auto [first, last] = cuts.range(task);
            // A group's keys for all tokens of the task: of one sequence they stay in the cache of
            // the core.
            for (size_t part = 0; part < num_parts; ++part) {
                for (size_t t = first; t < last; ++t) attend(t, part, thread);
            }
        });
    }

  private:
    size_t count_products() const {
        size_t num_scores = 0;
        for (size_t t = 0; t < request_.batch.num_tokens; ++t) num_scores += num_positions(t);
        return num_scores * 2 * s_.query_columns();
    }

    size_t num_positions(size_t t) const {
        return static_cast<size_t>(request_.batch.positions[t]) + 1;
    }

    // Part `part` of a token's heads: at most cpu::kHeadsMax of one group.
    void attend(size_t t, size_t part, unsigned thread) const {
        const size_t kv_head = part / parts_;
        const size_t first_in_group = part % parts_ * cpu::kHeadsMax;
        const size_t first_head = kv_head * s_.group_size() + first_in_group;
        WorkspaceCursor own({scratch_ + thread * thread_bytes_, thread_bytes_});
        cpu::HeadsState heads = take_heads_state(s_.head_dim, 0, own);
        heads.num_heads = std::min(cpu::kHeadsMax, s_.group_size() - first_in_group);
        attend_positions(
            {.query = request_.query.row(t) + first_head * s_.head_dim, .query_rope = nullptr},
            num_positions(t),
            kernels_,
            heads,
            [&](size_t first, size_t count) { return block_of(t, kv_head, first, count); },
            request_.out.row(t) + first_head * s_.head_dim);
    }

    // The positions from `first` on, and what is fetched while they are computed.
    cpu::AttendBlock block_of(size_t t, size_t kv_head, size_t first, size_t count) const {
        const size_t row = row_of(t, kv_head, first);
        cpu::AttendBlock block{.ckv = request_.cache.keys + row,
                               .kr = nullptr,
                               .values = request_.cache.values + row,
                               .num_positions = count,
                               .scale = request_.softmax_scale,
                               .is_cold = first == 0};
        const size_t next = first + count;
        if (next == num_positions(t)) return block;
        const size_t next_row = row_of(t, kv_head, next);
        block.num_next = std::min(kAttentionBlock, num_positions(t) - next);
        block.next_ckv = request_.cache.keys + next_row;
        block.afterwards = std::as_bytes(
            std::span(request_.cache.values + next_row, block.num_next * s_.head_dim));
        return block;
    }

    size_t row_of(size_t t, size_t kv_head, size_t position) const {
        const int32_t block = request_.batch.block_tables[t][position / kAttentionBlock];
        return gqa_row(s_, static_cast<size_t>(block) * kAttentionBlock, kv_head);
    }

    const GqaAttentionRequest& request_;
    const GqaShape& s_;
    const cpu::Kernels& kernels_;
    const size_t thread_bytes_;  // Of scratch_, for each thread.
    const size_t parts_;         // Of a group.
    std::byte* scratch_ = nullptr;
};

}  // namespace

size_t gqa_attention_workspace_bytes(const GqaShape& shape, unsigned num_threads) {
    return num_threads * workspace_round_up(heads_state_bytes(shape.head_dim, 0));
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
