// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/attention_to_ffn.h"

#include <cstring>
#include <vector>

#include "ops/reference/quantise.h"
#include "schedule/context/schedule_context.h"

namespace afd::ops::reference {
namespace {

struct Replica {
    int32_t rank;
    int32_t local_id;
};

// The logical expert of a slot, or -1.
int64_t expert_of(const AttentionToFfnRequest& r, size_t token, size_t slot) {
    const size_t top_k = r.expert_ids.shape[1];
    const size_t num_shared = r.context->common.selected_expert_num - top_k;
    const size_t num_routed = r.expert_rank_table.shape[1] - num_shared;
    const bool has_mask = r.active_mask.num_elements() > 0;
    if (has_mask && static_cast<const uint8_t*>(r.active_mask.data)[token] == 0) return -1;
    if (slot >= top_k) return static_cast<int64_t>(num_routed + slot - top_k);
    const int64_t id = static_cast<const int32_t*>(r.expert_ids.data)[token * top_k + slot];
    return id < 0 || id >= static_cast<int64_t>(r.expert_rank_table.shape[1]) ? -1 : id;
}

Replica replica_of(const AttentionToFfnRequest& r, size_t expert) {
    const size_t most = r.expert_rank_table.shape[2];
    const auto* entry =
        static_cast<const int32_t*>(r.expert_rank_table.data) +
        (static_cast<size_t>(r.layer_id) * r.expert_rank_table.shape[1] + expert) * most * 2;
    std::vector<Replica> replicas;
    for (size_t i = 0; i < most && entry[2 * i] >= 0; ++i) {
        replicas.push_back({entry[2 * i], entry[2 * i + 1]});
    }
    return replicas[r.choose_replica(r.session_id, replicas.size())];
}

void put_row(const AttentionToFfnRequest& r, size_t token, size_t expert, std::byte* out) {
    const size_t hidden = r.x.shape[1];
    const auto* x = static_cast<const std::byte*>(r.x.data) + token * hidden * size_of(r.x.dtype);
    if (r.quant_mode == -1) {
        std::memcpy(out, x, hidden * size_of(r.x.dtype));
        return;
    }
    const float* smooth = nullptr;
    if (r.scales.num_elements() > 0) {
        smooth = static_cast<const float*>(r.scales.data) +
                 (static_cast<size_t>(r.layer_id) * r.scales.shape[1] + expert) * hidden;
    }
    const float scale = quantise_row(r.x.dtype, x, smooth, hidden, reinterpret_cast<int8_t*>(out));
    std::memcpy(out + hidden, &scale, sizeof(scale));
}

void write_worker(const AttentionToFfnRequest& r, size_t rank) {
    const auto& common = r.context->common;
    const size_t num_slots = common.selected_expert_num;
    const size_t slots_per_lane = common.micro_batch_size * num_slots;
    const size_t lane = static_cast<size_t>(r.session_id) * common.micro_batch_num +
                        static_cast<size_t>(r.micro_batch_id);
    std::byte* window = r.ffn_windows[rank].data();
    std::vector<int32_t> ids(slots_per_lane, schedule::kMaskedId);
    bool has_rows = false;
    for (size_t i = 0; i < r.x.shape[0] * num_slots; ++i) {
        const int64_t expert = expert_of(r, i / num_slots, i % num_slots);
        if (expert < 0) continue;
        const Replica replica = replica_of(r, static_cast<size_t>(expert));
        if (replica.rank != static_cast<int32_t>(rank)) continue;
        has_rows = true;
        ids[i] = replica.local_id;
        put_row(r,
                i / num_slots,
                static_cast<size_t>(expert),
                window + r.context->ffn.token_data_buf +
                    (lane * slots_per_lane + i) * common.attn_to_ffn_token_size);
        if (r.slot_ranks.num_elements() > 0) {
            static_cast<int32_t*>(r.slot_ranks.data)[i] = replica.rank;
        }
    }
    if (r.sync_flag == 0 && !has_rows) return;
    std::byte* descriptor =
        window + r.context->ffn.token_info_buf + lane * (2 + slots_per_lane) * sizeof(int32_t);
    const int32_t head[2] = {static_cast<int32_t>(r.round), static_cast<int32_t>(r.layer_id)};
    // The flag first and without an order, unlike the operator: nobody reads a window while this
    // runs.
    std::memcpy(descriptor, head, sizeof(head));
    std::memcpy(descriptor + sizeof(head), ids.data(), ids.size() * sizeof(int32_t));
}

}  // namespace

Result<> attention_to_ffn(const AttentionToFfnRequest& r) {
    AFD_TRY(check_attention_to_ffn(r));
    auto* slot_ranks = static_cast<int32_t*>(r.slot_ranks.data);
    std::fill_n(slot_ranks, r.slot_ranks.num_elements(), -1);
    for (size_t rank = 0; rank < r.ffn_windows.size(); ++rank) write_worker(r, rank);
    return {};
}

}  // namespace afd::ops::reference
