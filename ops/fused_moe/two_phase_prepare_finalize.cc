// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/two_phase_prepare_finalize.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "ops/two_phase_layout.h"
#include "ops/two_phase_offsets.h"
#include "ops/two_phase_payload.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

constexpr int64_t kBlockTokens = 256;

}  // namespace

TwoPhasePrepareFinalize::TwoPhasePrepareFinalize(const FusedMoeConfig& config,
                                                 size_t num_ranks,
                                                 Parallel& parallel)
    : InProcess(config),
      num_ranks_(num_ranks),
      num_local_experts_((config.num_experts + config.num_shared + num_ranks - 1) / num_ranks),
      parallel_(parallel),
      recv_total_(num_ranks),
      batches_(config.num_micro_batches) {
    const size_t num_experts = config.num_experts + config.num_shared;
    const size_t num_slots = config.max_num_tokens * (config.top_k + config.num_shared);
    const size_t num_keys = num_ranks * num_local_experts_;
    for (size_t rank = 0; rank < num_ranks; ++rank) {
        const size_t count = num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
        for (size_t local = 0; local < count; ++local) {
            table_.push_back(static_cast<int32_t>(rank));
            table_.push_back(static_cast<int32_t>(local));
        }
    }
    const size_t row_bytes = config.hidden * (config.quantised_dispatch ? 1 : sizeof(Bf16));
    for (Batch& batch : batches_) {
        batch.sorted_indices.resize(num_slots);
        batch.send_counts.resize(num_keys);
        batch.base.resize(num_keys);
        batch.groups.resize(num_keys);
        batch.row_index.resize(num_slots);
        batch.segment.resize(num_slots * row_bytes);
        if (config.quantised_dispatch) batch.scale.resize(num_slots);
    }
    const MoeInput largest{.num_tokens = static_cast<uint32_t>(config.max_num_tokens),
                           .top_k = static_cast<uint32_t>(config.top_k),
                           .num_shared = static_cast<uint32_t>(config.num_shared)};
    workspace_.reserve(
        std::max(two_phase_layout_workspace_bytes({routing_of(largest)}, parallel.num_threads()),
                 two_phase_payload_workspace_bytes({{routing_of(largest)}})));
}

TwoPhaseRouting TwoPhasePrepareFinalize::routing_of(const MoeInput& input) const {
    TwoPhaseRouting routing;
    routing.num_ranks = static_cast<int64_t>(num_ranks_);
    routing.num_local_experts = static_cast<int64_t>(num_local_experts_);
    routing.shared_expert_num = input.num_shared;
    routing.block_size = kBlockTokens;
    routing.expert_ids =
        make_tensor<const void>(input.topk_ids, DType::kInt32, {input.num_tokens, input.top_k});
    routing.expert_rank_table = make_tensor<const void>(
        table_.data(), DType::kInt32, {1, config().num_experts + input.num_shared, 1, 2});
    return routing;
}

TwoPhaseBlocks TwoPhasePrepareFinalize::blocks_of(const MoeInput& input, Batch& batch) const {
    TwoPhaseBlocks blocks{routing_of(input)};
    blocks.sorted_indices = make_tensor<const void>(
        batch.sorted_indices.data(), DType::kInt32, {size_t{input.num_tokens} * input.num_slots()});
    blocks.send_counts = make_tensor<const void>(
        batch.send_counts.data(), DType::kInt32, {num_ranks_, num_local_experts_});
    blocks.base =
        make_tensor<const void>(batch.base.data(), DType::kInt64, {num_ranks_, num_local_experts_});
    return blocks;
}

Result<Ticket> TwoPhasePrepareFinalize::prepare_async(const MoeInput& input, uint32_t index) {
    AFD_ASSIGN(Ticket ticket, open(input, index));
    if (input.num_tokens > 1 && input.x.stride != input.x.num_cols) {
        return Error{Code::kInvalidArgument,
                     "rows of x are " + std::to_string(input.x.stride) +
                         " elements apart; two_phase takes rows without gaps, here " +
                         std::to_string(input.x.num_cols)};
    }
    Batch& batch = batches_[index];
    AFD_TRY(count(input, batch));
    AFD_TRY(send(input, batch));
    index_rows(input, batch);
    return ticket;
}

// Phase 1, and the grants between the phases.
Result<> TwoPhasePrepareFinalize::count(const MoeInput& input, Batch& batch) {
    const TwoPhaseBlocks views = blocks_of(input, batch);
    TwoPhaseLayoutRequest layout{routing_of(input)};
    layout.sorted_indices = make_tensor<void>(
        batch.sorted_indices.data(), DType::kInt32, {views.sorted_indices.shape[0]});
    layout.send_counts = make_tensor<void>(
        batch.send_counts.data(), DType::kInt32, {num_ranks_, num_local_experts_});
    AFD_TRY(two_phase_layout(layout, workspace_.bytes(), parallel_));

    TwoPhaseOffsetsRequest offsets;
    offsets.one_buffer = true;
    offsets.send_counts = make_tensor<const void>(
        batch.send_counts.data(), DType::kInt32, {1, num_ranks_, num_local_experts_});
    offsets.base =
        make_tensor<void>(batch.base.data(), DType::kInt64, {1, num_ranks_, num_local_experts_});
    offsets.recv_total = make_tensor<void>(recv_total_.data(), DType::kInt64, {num_ranks_});
    AFD_TRY(two_phase_offsets(offsets, {}, parallel_));

    batch.num_rows = static_cast<size_t>(std::reduce(recv_total_.begin(), recv_total_.end()));
    batch.num_groups = 0;
    const size_t experts_per_layer = config().num_experts + config().num_shared;
    for (size_t expert = 0; expert < config().num_experts + input.num_shared; ++expert) {
        const auto key = static_cast<size_t>(table_[2 * expert]) * num_local_experts_ +
                         static_cast<size_t>(table_[2 * expert + 1]);
        if (batch.send_counts[key] == 0) continue;
        batch.groups[batch.num_groups++] = {
            .key = static_cast<int64_t>(input.layer_id * experts_per_layer + expert),
            .count = batch.send_counts[key]};
    }
    return {};
}

Result<> TwoPhasePrepareFinalize::send(const MoeInput& input, Batch& batch) {
    const bool is_int8 = config().quantised_dispatch;
    TwoPhasePayloadRequest payload{blocks_of(input, batch)};
    payload.quant_mode = is_int8 ? 1 : -1;
    payload.x =
        make_tensor<const void>(input.x.data, DType::kBf16, {input.num_tokens, config().hidden});
    payload.recv_x = make_tensor<void>(batch.segment.data(),
                                       is_int8 ? DType::kInt8 : DType::kBf16,
                                       {batch.num_rows, config().hidden});
    if (is_int8) {
        payload.recv_scale = make_tensor<void>(batch.scale.data(), DType::kFp32, {batch.num_rows});
    }
    return two_phase_payload(payload, workspace_.bytes(), parallel_);
}

void TwoPhasePrepareFinalize::index_rows(const MoeInput& input, Batch& batch) {
    const TwoPhaseBlocks blocks = blocks_of(input, batch);
    std::fill_n(batch.row_index.begin(), size_t{input.num_tokens} * input.num_slots(), -1);
    WorkspaceCursor cursor(workspace_.bytes());
    const TwoPhaseScratch scratch = take_two_phase_scratch(blocks, cursor);
    std::fill(scratch.next.begin(), scratch.next.end(), 0);
    TwoPhaseWalk walk(blocks, scratch);
    for (size_t block = walk.first_block(); block < walk.end_block(); ++block) {
        walk.for_each(block, [&](const TwoPhasePlace& place) {
            batch.row_index[place.slot] = static_cast<int32_t>(place.row);
        });
    }
}

Activations TwoPhasePrepareFinalize::activations(const Ticket& ticket) const {
    const Batch& batch = batches_[ticket.slot()];
    GroupedActivations grouped{.x = {}, .groups = {batch.groups.data(), batch.num_groups}};
    const size_t hidden = config().hidden;
    if (config().quantised_dispatch) {
        const auto* values = reinterpret_cast<const int8_t*>(batch.segment.data());
        grouped.x = {.int8 = {make_rows(values, batch.num_rows, hidden), batch.scale.data()}};
    } else {
        const auto* values = reinterpret_cast<const Bf16*>(batch.segment.data());
        grouped.x = {.bf16 = make_rows(values, batch.num_rows, hidden)};
    }
    return grouped;
}

Result<void> TwoPhasePrepareFinalize::finalize(Ticket&& ticket,
                                               const TopKWeightAndReduce& reduce,
                                               Rows<Bf16> out) {
    const Ticket taken = std::move(ticket);
    const int32_t* row_index = batches_[taken.slot()].row_index.data();
    reduce.apply(output(taken), input(taken), config().num_experts, row_index, out);
    return {};
}

}  // namespace afd::ops
