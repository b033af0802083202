// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/parts/local_batched_prepare_finalize.h"

#include <algorithm>

#include "ops/tensor/row_tasks.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

// The record of an instance.
PrepareFinalizeCapability record_of(const FusedMoeConfig& config) {
    PrepareFinalizeCapability record = LocalBatchedPrepareFinalize::kCapability;
    record.max_num_tokens_per_rank = RankCapacity(config.max_num_tokens);
    return record;
}

}  // namespace

InProcessMemory LocalBatchedPrepareFinalize::memory(const FusedMoeConfig& config) {
    const RowBounds bounds = row_bounds(record_of(config), config);
    const size_t num_experts = config.num_experts + config.num_shared;
    const Capacity places = bounds.places * num_experts;
    const Capacity slots = Capacity(bounds.num_tokens) * (config.top_k + config.num_shared);
    const Capacity rows = config.dispatch_dtype == RowDtype::kInt8
                              ? bytes_of<int8_t>(places * config.hidden) + bytes_of<float>(places)
                              : bytes_of<Bf16>(places * config.hidden);
    return {.layout = bytes_of<int32_t>(Capacity(num_experts)) + bytes_of<int32_t>(slots),
            .rows = DispatchRows::memory(config.dispatch_dtype, config.hidden, bounds.num_tokens) +
                    rows,
            .scratch = {}};
}

LocalBatchedPrepareFinalize::LocalBatchedPrepareFinalize(const FusedMoeConfig& config,
                                                         Parallel& parallel)
    : InProcess(record_of(config), config, memory(config)),
      num_local_experts_(config.num_experts + config.num_shared),
      parallel_(parallel) {
    for (size_t i = 0; i < num_layouts(); ++i) {
        WorkspaceCursor cursor = layout_memory(i);
        layouts_.push_back(
            {cursor.take<int32_t>(num_local_experts_),
             cursor.take<int32_t>(bounds().num_tokens * (config.top_k + config.num_shared)),
             0});
    }
    for (size_t i = 0; i < num_slots(); ++i) {
        WorkspaceCursor cursor = rows_memory(i);
        Batch batch{DispatchRows(config.dispatch_dtype, config.hidden, bounds().num_tokens, cursor),
                    nullptr,
                    nullptr,
                    nullptr};
        if (config.dispatch_dtype == RowDtype::kInt8) {
            batch.int8 = cursor.take<int8_t>(num_places() * config.hidden);
            batch.scale = cursor.take<float>(num_places());
        } else {
            batch.bf16 = cursor.take<Bf16>(num_places() * config.hidden);
        }
        batches_.push_back(batch);
    }
}

Result<> LocalBatchedPrepareFinalize::lay_out(const MoeInput& input, size_t index) {
    Layout& layout = layouts_[index];
    layout.num_rows = 0;
    std::fill_n(layout.expert_num_tokens, num_local_experts_, 0);
    const size_t num_slots = input.num_slots();
    const auto places = static_cast<int32_t>(bounds().places.value());
    for (size_t token = 0; token < input.num_tokens; ++token) {
        const int32_t* ids = input.topk_ids + token * input.top_k;
        int32_t* rows = layout.row_index + token * num_slots;
        for (size_t k = 0; k < num_slots; ++k) {
            const bool is_shared = k >= input.top_k;
            const LocalExpert local =
                is_shared ? shared_expert(k - input.top_k) : local_expert(LogicalExpert{ids[k]});
            const auto expert = static_cast<int32_t>(local);
            rows[k] = -1;
            if (state_of(local) != AssignmentState::kValid) continue;
            // An expert that a token names twice gets its row once, which is why
            // max_num_tokens_per_rank places suffice; both slots read that row.
            const int32_t* first = is_shared ? ids + k : std::find(ids, ids + k, expert);
            if (first != ids + k) {
                rows[k] = rows[first - ids];
                continue;
            }
            int32_t& count = layout.expert_num_tokens[expert];
            AFD_ASSERT(count < places, "expert %d has %d places, and more rows", expert, places);
            rows[k] = expert * places + count++;
            ++layout.num_rows;
        }
    }
    return {};
}

Result<> LocalBatchedPrepareFinalize::send(const MoeInput& input, size_t slot, size_t index) {
    Batch& batch = batches_[slot];
    const int32_t* row_index = layouts_[index].row_index;
    const ActivationRows rows =
        batch.rows.prepare(input.x.slice(0, input.num_tokens), parallel_, profile());
    const size_t hidden = config().hidden;
    const size_t num_slots = input.num_slots();
    const auto copy = [&](size_t first, size_t last, unsigned) {
        for (size_t i = first * num_slots; i < last * num_slots; ++i) {
            if (row_index[i] < 0) continue;
            const size_t token = i / num_slots;
            const auto place = static_cast<size_t>(row_index[i]);
            if (rows.is_int8()) {
                std::copy_n(rows.int8.values.row(token), hidden, &batch.int8[place * hidden]);
                batch.scale[place] = rows.int8.row_scale[token];
            } else {
                std::copy_n(rows.bf16.row(token), hidden, &batch.bf16[place * hidden]);
            }
        }
    };
    const size_t token_bytes = num_slots * hidden * sizeof(Bf16);
    for_rows(parallel_, input.num_tokens, token_bytes / kCopiedBytesPerElement, copy);
    return {};
}

Activations LocalBatchedPrepareFinalize::activations(const Ticket& ticket) const {
    const Batch& batch = batches_[ticket.slot()];
    const size_t hidden = config().hidden;
    BatchedActivations batched{.x = {},
                               .layer_id = input(ticket).layer_id,
                               .num_local_experts = num_local_experts_,
                               .max_num_tokens = bounds().places,
                               .expert_num_tokens = layouts_[layout_of(ticket)].expert_num_tokens};
    if (config().dispatch_dtype == RowDtype::kInt8) {
        batched.x = {
            .int8 = {make_rows<const int8_t>(batch.int8, num_places(), hidden), batch.scale}};
    } else {
        batched.x = {.bf16 = make_rows<const Bf16>(batch.bf16, num_places(), hidden)};
    }
    return batched;
}

}  // namespace afd::ops
