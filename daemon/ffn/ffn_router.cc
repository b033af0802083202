// SPDX-License-Identifier: Apache-2.0
#include "daemon/ffn/ffn_router.h"

#include <algorithm>
#include <cstring>

#include "ops/operators/moe_init_routing.h"
#include "ops/tensor/row_tasks.h"
#include "schedule/layout/geometry.h"

namespace afd::daemon {

FfnRouter::FfnRouter(const schedule::ReturnTransport& transport,
                     const schedule::ExpertPlacement& placement,
                     const model::Router& router,
                     size_t hidden,
                     bool has_rest,
                     unsigned num_threads)
    : transport_(transport),
      placement_(placement),
      router_(router),
      rank_(transport.rank()),
      tokens_per_descriptor_(transport.layout().geometry.micro_batch_size),
      num_slots_(transport.layout().geometry.selected_expert_num),
      top_k_(static_cast<uint32_t>(router.attributes().top_k)),
      num_local_(placement.num_local_experts_per_layer(rank_)),
      num_keys_(placement.num_layers() * num_local_),
      hidden_(hidden) {
    const size_t num_sessions = transport.layout().geometry.num_sessions;
    const size_t tokens_max = num_sessions * tokens_per_descriptor_;
    by_layer_.reserve(num_sessions);
    tokens_.reserve(tokens_max);
    x_.resize(tokens_max * hidden);
    if (has_rest) sent_.resize(3 * x_.size());
    topk_ids_.resize(tokens_max * top_k_);
    topk_weights_.resize(tokens_max * top_k_);
    keys_.resize(tokens_max * num_slots_);
    row_slots_.resize(tokens_max * num_slots_);
    router_workspace_.reserve(router.workspace_bytes(tokens_max, num_threads, has_rest));
    // One key more than there are: what is computed elsewhere sorts behind everything of ours.
    sort_workspace_.reserve(
        ops::moe_init_routing_v3_workspace_bytes(tokens_max, num_slots_, num_keys_ + 1));
}

void FfnRouter::gather(const schedule::ReadyScan& scan,
                       ExpertBatch& batch,
                       ops::Parallel& parallel) {
    list_tokens(scan);
    copy_rows(scan, parallel);
    route(scan, parallel);
    name_keys(scan);
    expand(batch, parallel);
    name_slots(scan, batch);
}

// An offered token has its offer in slot 0; any other has a row in each slot that is used here.
void FfnRouter::list_tokens(const schedule::ReadyScan& scan) {
    const auto layer_of = [&scan](uint32_t i) { return scan.taken()[i].layer_id; };
    by_layer_.clear();
    tokens_.clear();
    for (uint32_t i = 0; i < scan.taken().size(); ++i) by_layer_.push_back(i);
    // By layer, so that the gate of a layer runs once over all of its tokens; then by descriptor,
    // so that the order does not depend on the sort.
    std::sort(by_layer_.begin(), by_layer_.end(), [&](uint32_t a, uint32_t b) {
        return layer_of(a) != layer_of(b) ? layer_of(a) < layer_of(b) : a < b;
    });
    for (const uint32_t i : by_layer_) {
        const std::span<const int32_t> ids = scan.ids(i);
        for (uint32_t token = 0; token < tokens_per_descriptor_; ++token) {
            const std::span<const int32_t> slots = ids.subspan(token * num_slots_, num_slots_);
            const auto used = std::find_if(
                slots.begin(), slots.end(), [](int32_t id) { return id != schedule::kMaskedId; });
            if (used == slots.end()) continue;
            tokens_.push_back({i, token, static_cast<uint32_t>(used - slots.begin())});
        }
    }
}

void FfnRouter::copy_rows(const schedule::ReadyScan& scan, ops::Parallel& parallel) {
    const size_t row_bytes = hidden_ * sizeof(ops::Bf16);
    const auto copy = [&](size_t first, size_t last, unsigned) {
        for (size_t t = first; t < last; ++t) {
            const schedule::ReadyDescriptor& from = scan.taken()[tokens_[t].descriptor];
            const std::byte* row = transport_.token_row(
                from.session, from.micro_batch, tokens_[t].token_idx, tokens_[t].row_slot);
            if (!sent_.empty()) {
                // Once for all: what is routed, computed and, with checksums, looked at is one
                // copy.
                std::memcpy(&sent_[3 * t * hidden_], row, 3 * row_bytes);
                row = reinterpret_cast<const std::byte*>(&sent_[3 * t * hidden_]);
            }
            std::memcpy(&x_[t * hidden_], row, row_bytes);
        }
    };
    ops::for_rows(parallel, tokens_.size(), row_bytes / ops::kCopiedBytesPerElement, copy);
}

// One call of the gate for all tokens of a layer.
void FfnRouter::route(const schedule::ReadyScan& scan, ops::Parallel& parallel) {
    const auto layer_of = [&](size_t t) { return scan.taken()[tokens_[t].descriptor].layer_id; };
    const auto x = ops::make_rows<const ops::Bf16>(x_.data(), tokens_.size(), hidden_);
    for (size_t first = 0, end = 0; first < tokens_.size(); first = end) {
        const int32_t layer_id = layer_of(first);
        while (end < tokens_.size() && layer_of(end) == layer_id) ++end;
        // Layers that look experts up by token id stay with the attention worker, which alone knows
        // the ids.
        if (!router_.routes(static_cast<uint32_t>(layer_id))) continue;
        router_.route(static_cast<uint32_t>(layer_id),
                      x.slice(first, end - first),
                      {&topk_ids_[first * top_k_], &topk_weights_[first * top_k_]},
                      router_workspace_.bytes(),
                      parallel,
                      rest_of(first, end - first));
    }
}

model::RowRest FfnRouter::rest_of(size_t first, size_t count) const {
    if (sent_.empty()) return {};
    const ops::Bf16* const row = &sent_[3 * first * hidden_];
    return {.middle = {row + hidden_, count, hidden_, 3 * hidden_},
            .low = {row + 2 * hidden_, count, hidden_, 3 * hidden_}};
}

bool FfnRouter::is_offered(const schedule::ReadyScan& scan, const Token& token) const {
    const int32_t layer_id = scan.taken()[token.descriptor].layer_id;
    return schedule::is_offered_id(first_id(scan, token)) &&
           router_.routes(static_cast<uint32_t>(layer_id));
}

void FfnRouter::name_keys(const schedule::ReadyScan& scan) {
    const auto elsewhere = static_cast<int32_t>(num_keys_);
    for (size_t t = 0; t < tokens_.size(); ++t) {
        const Token& token = tokens_[t];
        const schedule::ReadyDescriptor& from = scan.taken()[token.descriptor];
        const int32_t* ids = &scan.ids(token.descriptor)[size_t{token.token_idx} * num_slots_];
        int32_t* keys = &keys_[t * num_slots_];
        for (uint32_t k = 0; k < num_slots_; ++k) {
            // What the session chose: shared experts, and all slots of layers that it routes.
            // An offer is no local id, so it holds nothing here.
            const bool is_chosen = placement_.holds(rank_, from.layer_id, ids[k]);
            keys[k] = is_chosen ? key_of(from.layer_id, ids[k]) : elsewhere;
        }
        if (!is_offered(scan, token)) continue;
        const uint32_t left_out = schedule::left_out_of_offer(first_id(scan, token));
        for (uint32_t k = 0; k < top_k_; ++k) {
            const auto expert = static_cast<uint32_t>(topk_ids_[t * top_k_ + k]);
            // The same choice as the session would make, with its number: every rank computes it,
            // and exactly one finds itself.
            const auto owner =
                placement_.choose_where(static_cast<uint32_t>(from.layer_id),
                                        expert,
                                        from.session,
                                        [left_out](const schedule::ExpertReplica& replica) {
                                            return !schedule::is_left_out(left_out, replica.rank);
                                        });
            const bool is_here = owner && owner->rank == rank_;
            keys[k] = is_here ? key_of(from.layer_id, owner->local_id) : elsewhere;
        }
    }
}

void FfnRouter::expand(ExpertBatch& batch, ops::Parallel& parallel) {
    const size_t num_tokens = tokens_.size();
    const size_t num_slots = num_tokens * num_slots_;
    const int64_t own_range[] = {0, static_cast<int64_t>(num_keys_)};
    ops::MoeInitRoutingV3Request request;
    request.expert_num = static_cast<int64_t>(num_keys_ + 1);
    request.expert_tokens_num_type = 2;
    request.expert_tokens_num_flag = true;
    request.active_expert_range = own_range;
    request.row_idx_type = 1;
    request.x = ops::make_tensor<const void>(x_.data(), ops::DType::kBf16, {num_tokens, hidden_});
    request.expert_idx =
        ops::make_tensor<const void>(keys_.data(), ops::DType::kInt32, {num_tokens, num_slots_});
    request.expanded_x =
        ops::make_tensor<void>(batch.x.data(), ops::DType::kBf16, {num_slots, hidden_});
    request.expanded_row_idx =
        ops::make_tensor<void>(row_slots_.data(), ops::DType::kInt32, {num_slots});
    request.expert_tokens_count_or_cumsum =
        ops::make_tensor<void>(batch.groups.data(), ops::DType::kInt64, {num_keys_ + 1, 2});
    // Without the checks, whose messages allocate: 174 allocations a pass.
    ops::moe_init_routing_v3_checked(request, sort_workspace_.bytes(), parallel);
    batch.num_rows = 0;
    batch.num_groups = 0;
    while (batch.groups[batch.num_groups].count > 0) {
        batch.num_rows += static_cast<size_t>(batch.groups[batch.num_groups++].count);
    }
}

void FfnRouter::name_slots(const schedule::ReadyScan& scan, ExpertBatch& batch) const {
    for (size_t i = 0; i < batch.num_rows; ++i) {
        const size_t t = static_cast<size_t>(row_slots_[i]) / num_slots_;
        const size_t k = static_cast<size_t>(row_slots_[i]) % num_slots_;
        const schedule::ReadyDescriptor& from = scan.taken()[tokens_[t].descriptor];
        const bool is_routed = k < top_k_ && is_offered(scan, tokens_[t]);
        batch.session_ids[i] = static_cast<int32_t>(from.session);
        batch.micro_batch_ids[i] = static_cast<int32_t>(from.micro_batch);
        batch.token_ids[i] = static_cast<int32_t>(tokens_[t].token_idx);
        batch.expert_offsets[i] = static_cast<int32_t>(k);
        if (!batch.offered_slots.empty()) {
            batch.offered_slots[i] = static_cast<int32_t>(tokens_[t].row_slot);
        }
        if (!batch.sent_rows.empty()) {
            batch.sent_rows[i] = reinterpret_cast<const std::byte*>(&sent_[3 * t * hidden_]);
        }
        // The weight of a slot that the session routed is not read there; 1 keeps the bytes
        // defined.
        batch.weights[i] = is_routed ? topk_weights_[t * top_k_ + k] : 1.0f;
    }
}

}  // namespace afd::daemon
