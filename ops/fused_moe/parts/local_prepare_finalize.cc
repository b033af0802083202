// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/parts/local_prepare_finalize.h"

#include <algorithm>

namespace afd::ops {
namespace {

Capacity slots_of(const FusedMoeConfig& config) {
    return Capacity(row_bounds(LocalPrepareFinalize::kCapability, config).num_tokens) *
           (config.top_k + config.num_shared);
}

}  // namespace

InProcessMemory LocalPrepareFinalize::memory(const FusedMoeConfig& config) {
    const Capacity slots = slots_of(config);
    return {.layout = bytes_of<LocalExpert>(slots) + bytes_of<int32_t>(slots) +
                      bytes_of<int32_t>(Capacity(config.num_experts + config.num_shared)),
            .rows = DispatchRows::memory(config.dispatch_dtype,
                                         config.hidden,
                                         row_bounds(kCapability, config).num_tokens) +
                    bytes_of<float>(slots),
            .scratch = {}};
}

LocalPrepareFinalize::LocalPrepareFinalize(const FusedMoeConfig& config, Parallel& parallel)
    : InProcess(kCapability, config, memory(config)), parallel_(parallel) {
    const size_t num_places = slots_of(config).value();
    for (size_t i = 0; i < num_layouts(); ++i) {
        WorkspaceCursor cursor = layout_memory(i);
        layouts_.push_back({cursor.take<LocalExpert>(num_places),
                            cursor.take<int32_t>(num_places),
                            cursor.take<int32_t>(config.num_experts + config.num_shared),
                            0});
    }
    for (size_t i = 0; i < num_slots(); ++i) {
        WorkspaceCursor cursor = rows_memory(i);
        DispatchRows rows(config.dispatch_dtype, config.hidden, bounds().num_tokens, cursor);
        batches_.push_back({rows, {}, cursor.take<float>(num_places)});
    }
}

Result<> LocalPrepareFinalize::lay_out(const MoeInput& input, size_t index) {
    LocalExpert* local = layouts_[index].local_ids;
    for (uint32_t token = 0; token < input.num_tokens; ++token) {
        for (uint32_t k = 0; k < input.top_k; ++k) {
            *local++ = local_expert(input.expert_of(TokenRow{token}, SlotIndex{k}));
        }
        for (size_t j = 0; j < input.num_shared; ++j) *local++ = shared_expert(j);
    }
    Layout& layout = layouts_[index];
    layout.num_rows = 0;
    std::fill_n(layout.expert_counts, config().num_experts + config().num_shared, 0);
    for (size_t i = 0; i < size_t{input.num_tokens} * input.num_slots(); ++i) {
        const LocalExpert expert = layout.local_ids[i];
        // Masked slots stay in the standard format: a slot's place is its number, so nothing is
        // permuted here.
        const bool is_valid = state_of(expert) == AssignmentState::kValid;
        layout.row_index[i] = is_valid ? static_cast<int32_t>(i) : -1;
        if (!is_valid) continue;
        ++layout.expert_counts[static_cast<size_t>(expert)];
        ++layout.num_rows;
    }
    return {};
}

Result<> LocalPrepareFinalize::send(const MoeInput& input, size_t slot, size_t) {
    Batch& batch = batches_[slot];
    batch.x = batch.rows.prepare(input.x.slice(0, input.num_tokens), parallel_, profile());
    float* weight = batch.weights;
    for (size_t token = 0; token < input.num_tokens; ++token) {
        for (size_t k = 0; k < input.top_k; ++k) {
            *weight++ = input.topk_weights[token * input.top_k + k];
        }
        for (size_t j = 0; j < input.num_shared; ++j) *weight++ = 1.0f;
    }
    return {};
}

Activations LocalPrepareFinalize::activations(const Ticket& ticket) const {
    const Batch& batch = batches_[ticket.slot()];
    return StandardActivations{.x = batch.x,
                               .layer_id = input(ticket).layer_id,
                               .num_slots = input(ticket).num_slots(),
                               .local_ids = layouts_[layout_of(ticket)].local_ids,
                               .weights = batch.weights};
}

}  // namespace afd::ops
