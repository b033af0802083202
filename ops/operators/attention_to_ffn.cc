// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/attention_to_ffn.h"

#include <algorithm>
#include <cstring>

#include "ops/linear/quantise.h"
#include "ops/operators/context_check.h"
#include "ops/operators/context_copy.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/workspace.h"
#include "schedule/context/schedule_context.h"
#include "schedule/wait/flag.h"

namespace afd::ops {
namespace {

// Where a slot goes; rank -1: nowhere.
struct Target {
    int32_t rank = -1;
    int32_t local_id = schedule::kMaskedId;
};

struct Plan {
    const AttentionToFfnRequest& request;
    size_t num_tokens;
    size_t top_k;
    size_t num_slots;   // K1
    size_t num_routed;  // E
    size_t hidden;
    Target* targets;    // [T][K1]
    uint8_t* has_rows;  // [F]

    size_t lane() const {
        return static_cast<size_t>(request.session_id) * request.context->common.micro_batch_num +
               static_cast<size_t>(request.micro_batch_id);
    }
    size_t slots_per_lane() const {
        return size_t{request.context->common.micro_batch_size} * num_slots;
    }
    int32_t* descriptor(size_t rank) const {
        return reinterpret_cast<int32_t*>(request.ffn_windows[rank].data() +
                                          request.context->ffn.token_info_buf) +
               lane() * (2 + slots_per_lane());
    }
    std::byte* row(size_t rank, size_t token, size_t slot) const {
        return request.ffn_windows[rank].data() + request.context->ffn.token_data_buf +
               (lane() * slots_per_lane() + token * num_slots + slot) *
                   request.context->common.attn_to_ffn_token_size;
    }
    // The logical expert of a slot, or -1.
    int64_t expert_of(size_t token, size_t slot) const {
        const auto* mask = static_cast<const uint8_t*>(request.active_mask.data);
        if (request.active_mask.num_elements() > 0 && mask[token] == 0) return -1;
        // Behind the mask: an inactive token sends nothing to shared experts either.
        if (slot >= top_k) return static_cast<int64_t>(num_routed + slot - top_k);
        const int64_t id =
            static_cast<const int32_t*>(request.expert_ids.data)[token * top_k + slot];
        return id >= 0 && id < static_cast<int64_t>(request.expert_rank_table.shape[1]) ? id : -1;
    }
};

Target target_of(const AttentionToFfnRequest& r, size_t expert) {
    const size_t num_replicas_max = r.expert_rank_table.shape[2];
    const auto* replicas =
        static_cast<const int32_t*>(r.expert_rank_table.data) +
        (static_cast<size_t>(r.layer_id) * r.expert_rank_table.shape[1] + expert) *
            num_replicas_max * 2;
    size_t num_replicas = 1;
    // From 1 on: the check refused an expert without a replica.
    while (num_replicas < num_replicas_max && replicas[2 * num_replicas] >= 0) ++num_replicas;
    const size_t choice = r.choose_replica(r.session_id, num_replicas);
    AFD_ASSERT(choice < num_replicas, "replica %zu of %zu", choice, num_replicas);
    return {replicas[2 * choice], replicas[2 * choice + 1]};
}

Plan make_plan(const AttentionToFfnRequest& r, std::span<std::byte> workspace) {
    Plan plan{r, r.x.shape[0], r.expert_ids.shape[1], 0, 0, r.x.shape[1], nullptr, nullptr};
    plan.num_slots = r.context->common.selected_expert_num;
    plan.num_routed = r.expert_rank_table.shape[1] - (plan.num_slots - plan.top_k);
    WorkspaceCursor cursor(workspace);
    plan.targets = cursor.take<Target>(plan.num_tokens * plan.num_slots);
    plan.has_rows = cursor.take<uint8_t>(r.ffn_windows.size());
    std::fill_n(plan.has_rows, r.ffn_windows.size(), uint8_t{0});
    // Each slot's replica is asked for once: its row and its id must go to the same place.
    for (size_t token = 0; token < plan.num_tokens; ++token) {
        for (size_t slot = 0; slot < plan.num_slots; ++slot) {
            const int64_t expert = plan.expert_of(token, slot);
            Target& target = plan.targets[token * plan.num_slots + slot];
            target = expert < 0 ? Target{} : target_of(r, static_cast<size_t>(expert));
            if (target.rank >= 0) plan.has_rows[target.rank] = 1;
        }
    }
    return plan;
}

void put_token(const Plan& plan, size_t token) {
    const AttentionToFfnRequest& r = plan.request;
    const size_t x_bytes = plan.hidden * size_of(r.x.dtype);
    const std::byte* x = static_cast<const std::byte*>(r.x.data) + token * x_bytes;
    const bool is_quantised = r.quant_mode == 1;
    const bool is_smooth = r.scales.num_elements() > 0;
    const std::byte* row_bytes = is_quantised ? nullptr : x;
    const size_t num_bytes = is_quantised ? plan.hidden + sizeof(float) : x_bytes;
    for (size_t slot = 0; slot < plan.num_slots; ++slot) {
        const Target& target = plan.targets[token * plan.num_slots + slot];
        if (target.rank < 0) continue;
        std::byte* out = plan.row(static_cast<size_t>(target.rank), token, slot);
        if (row_bytes != nullptr) {
            std::memcpy(out, row_bytes, num_bytes);
            continue;
        }
        const float* smooth = nullptr;
        if (is_smooth) {
            const size_t expert = static_cast<size_t>(plan.expert_of(token, slot));
            smooth = static_cast<const float*>(r.scales.data) +
                     (static_cast<size_t>(r.layer_id) * r.scales.shape[1] + expert) * plan.hidden;
        }
        const float scale =
            quantise_row(r.x.dtype, x, smooth, plan.hidden, reinterpret_cast<int8_t*>(out));
        std::memcpy(out + plan.hidden, &scale, sizeof(scale));
        // Without smooth scales the token's other slots get the same bytes.
        if (!is_smooth) row_bytes = out;
    }
}

void put_tokens(const Plan& plan, Parallel& parallel) {
    const size_t bytes = plan.hidden * plan.num_slots * size_of(plan.request.x.dtype);
    const auto put = [&](size_t first, size_t last, unsigned) {
        for (size_t token = first; token < last; ++token) put_token(plan, token);
    };
    for_rows(parallel, plan.num_tokens, bytes / kCopiedBytesPerElement, put);
}

void publish(const Plan& plan, size_t rank) {
    int32_t* descriptor = plan.descriptor(rank);
    descriptor[1] = static_cast<int32_t>(plan.request.layer_id);
    int32_t* ids = descriptor + 2;
    // All BS · K1 of them, not only those of the call's tokens: what an earlier round left would
    // ask for rows of this one (R6).
    std::fill_n(ids, plan.slots_per_lane(), schedule::kMaskedId);
    for (size_t i = 0; i < plan.num_tokens * plan.num_slots; ++i) {
        if (plan.targets[i].rank == static_cast<int32_t>(rank)) ids[i] = plan.targets[i].local_id;
    }
    // Last: who sees the round sees rows, ids and layer.
    schedule::publish_seq_cst(descriptor[0], static_cast<int32_t>(plan.request.round));
}

}  // namespace

size_t replica_of_session(int64_t session_id, size_t num_replicas) {
    return static_cast<size_t>(session_id) % num_replicas;
}

size_t attention_to_ffn_workspace_bytes(size_t num_tokens,
                                        size_t num_slots,
                                        size_t num_workers,
                                        size_t num_places) {
    const size_t plan_bytes = workspace_bytes_of<Target>(num_tokens * num_slots) +
                              workspace_bytes_of<uint8_t>(num_workers);
    return std::max(plan_bytes, attention_to_ffn_check_bytes(num_places));
}

Result<> attention_to_ffn(const AttentionToFfnRequest& request,
                          std::span<std::byte> workspace,
                          Parallel& parallel) {
    // Others may write the context. One copy is judged and used, so nothing changes between the
    // two.
    ContextCopy context(request.context);
    AttentionToFfnRequest r = request;
    r.context = context.get();
    AFD_TRY(check_attention_to_ffn(r, workspace));
    const Plan plan = make_plan(r, workspace);
    put_tokens(plan, parallel);
    for (size_t rank = 0; rank < r.ffn_windows.size(); ++rank) {
        if (r.sync_flag == 1 || plan.has_rows[rank] != 0) publish(plan, rank);
    }
    if (r.slot_ranks.num_elements() > 0) {
        auto* ranks = static_cast<int32_t*>(r.slot_ranks.data);
        for (size_t i = 0; i < plan.num_tokens * plan.num_slots; ++i) {
            ranks[i] = plan.targets[i].rank;
        }
    }
    return {};
}

}  // namespace afd::ops
