// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/parts/two_phase_prepare_finalize.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "ops/two_phase/layout.h"
#include "ops/two_phase/offsets.h"
#include "ops/two_phase/payload.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

// Of the walk over tokens (ops/two_phase/blocks.h).
constexpr int64_t kBlockTokens = 256;

size_t experts_per_rank(const FusedMoeConfig& config, size_t num_ranks) {
    return (config.num_experts + config.num_shared + num_ranks - 1) / num_ranks;
}

// Where the experts are: routed ones and after them the shared ones in a line over the ranks.
std::vector<int32_t> rank_table(const FusedMoeConfig& config, size_t num_ranks) {
    const size_t num_experts = config.num_experts + config.num_shared;
    std::vector<int32_t> table;
    for (size_t rank = 0; rank < num_ranks; ++rank) {
        const size_t count = num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
        for (size_t local = 0; local < count; ++local) {
            table.push_back(static_cast<int32_t>(rank));
            table.push_back(static_cast<int32_t>(local));
        }
    }
    return table;
}

TwoPhaseRouting routing_of(const MoeInput& input,
                           const int32_t* routed_ids,
                           const FusedMoeConfig& config,
                           size_t num_ranks,
                           const int32_t* table) {
    TwoPhaseRouting routing;
    routing.num_ranks = static_cast<int64_t>(num_ranks);
    routing.num_local_experts = static_cast<int64_t>(experts_per_rank(config, num_ranks));
    routing.shared_expert_num = input.num_shared;
    routing.block_size = kBlockTokens;
    routing.expert_ids =
        make_tensor<const void>(routed_ids, DType::kInt32, {input.num_tokens, input.top_k});
    routing.expert_rank_table = make_tensor<const void>(
        table, DType::kInt32, {1, config.num_experts + input.num_shared, 1, 2});
    return routing;
}

// What happens to rows before they are copied. int8 ones are quantised on their way; fp8 ones are
// rounded to fp8 and back here, since experts in this process take bf16.
RowDtype rounding(const FusedMoeConfig& config) {
    return config.dispatch_dtype == RowDtype::kFp8 ? RowDtype::kFp8 : RowDtype::kBf16;
}

size_t workspace_bytes(const FusedMoeConfig& config,
                       size_t num_tokens,
                       size_t num_ranks,
                       unsigned num_threads) {
    // The workspace grows with each of the three, so the largest call bounds all; of ids and table
    // the shapes suffice.
    const MoeInput largest{.num_tokens = static_cast<uint32_t>(num_tokens),
                           .top_k = static_cast<uint32_t>(config.top_k),
                           .num_shared = static_cast<uint32_t>(config.num_shared)};
    const TwoPhaseRouting routing = routing_of(largest, nullptr, config, num_ranks, nullptr);
    return std::max(two_phase_layout_workspace_bytes({routing}, num_threads),
                    two_phase_payload_workspace_bytes({{routing}}));
}

}  // namespace

InProcessMemory TwoPhasePrepareFinalize::memory(const FusedMoeConfig& config,
                                                size_t num_ranks,
                                                unsigned num_threads) {
    const size_t num_tokens = row_bounds(kCapability, config).num_tokens;
    const Capacity slots = Capacity(num_tokens) * (config.top_k + config.num_shared);
    const Capacity keys = Capacity(num_ranks) * experts_per_rank(config, num_ranks);
    const bool is_int8 = config.dispatch_dtype == RowDtype::kInt8;
    const Capacity rows = is_int8
                              ? bytes_of<std::byte>(slots * config.hidden) + bytes_of<float>(slots)
                              : bytes_of<std::byte>(slots * config.hidden * sizeof(Bf16));
    return {.layout = bytes_of<int32_t>(slots) + bytes_of<int32_t>(keys) + bytes_of<int64_t>(keys) +
                      bytes_of<int32_t>(slots) + bytes_of<int32_t>(slots) +
                      bytes_of<int32_t>(Capacity(config.num_experts + config.num_shared)),
            .rows = bytes_of<ExpertGroup>(keys) + rows,
            .scratch = DispatchRows::memory(rounding(config), config.hidden, num_tokens) +
                       bytes_of<int64_t>(Capacity(num_ranks)) +
                       Capacity(workspace_round_up(
                           workspace_bytes(config, num_tokens, num_ranks, num_threads)))};
}

TwoPhasePrepareFinalize::TwoPhasePrepareFinalize(const FusedMoeConfig& config,
                                                 size_t num_ranks,
                                                 Parallel& parallel)
    : InProcess(kCapability, config, memory(config, num_ranks, parallel.num_threads())),
      num_ranks_(num_ranks),
      num_local_experts_(experts_per_rank(config, num_ranks)),
      parallel_(parallel),
      table_(rank_table(config, num_ranks)) {
    const size_t slots = bounds().num_tokens * (config.top_k + config.num_shared);
    const size_t num_keys = num_ranks * num_local_experts_;
    for (size_t i = 0; i < num_layouts(); ++i) {
        WorkspaceCursor cursor = layout_memory(i);
        layouts_.push_back({cursor.take<int32_t>(slots),
                            cursor.take<int32_t>(num_keys),
                            cursor.take<int64_t>(num_keys),
                            cursor.take<int32_t>(slots),
                            cursor.take<int32_t>(slots),
                            cursor.take<int32_t>(config.num_experts + config.num_shared),
                            0});
    }
    const bool is_int8 = config.dispatch_dtype == RowDtype::kInt8;
    const size_t row_bytes = config.hidden * (is_int8 ? 1 : sizeof(Bf16));
    for (size_t i = 0; i < num_slots(); ++i) {
        WorkspaceCursor cursor = rows_memory(i);
        batches_.push_back({cursor.take<ExpertGroup>(num_keys),
                            cursor.take<std::byte>(slots * row_bytes),
                            is_int8 ? cursor.take<float>(slots) : nullptr,
                            0});
    }
    WorkspaceCursor cursor(scratch());
    rounded_.emplace(rounding(config), config.hidden, bounds().num_tokens, cursor);
    recv_total_ = cursor.take<int64_t>(num_ranks);
    workspace_ = cursor.rest();
}

TwoPhaseBlocks TwoPhasePrepareFinalize::blocks_of(const MoeInput& input,
                                                  const Layout& layout) const {
    TwoPhaseBlocks blocks{
        routing_of(input, layout.routed_ids, config(), num_ranks_, table_.data())};
    blocks.sorted_indices = make_tensor<const void>(
        layout.sorted_indices, DType::kInt32, {size_t{input.num_tokens} * input.num_slots()});
    blocks.send_counts = make_tensor<const void>(
        layout.send_counts, DType::kInt32, {num_ranks_, num_local_experts_});
    blocks.base =
        make_tensor<const void>(layout.base, DType::kInt64, {num_ranks_, num_local_experts_});
    return blocks;
}

// Phase 1, and the grants between the phases.
Result<> TwoPhasePrepareFinalize::lay_out(const MoeInput& input, size_t index) {
    Layout& layout = layouts_[index];
    // The operators would send a pick of a shared expert. Here, as in every part, an id that is no
    // routed expert's masks its slot.
    std::transform(input.topk_ids,
                   input.topk_ids + size_t{input.num_tokens} * input.top_k,
                   layout.routed_ids,
                   [this](int32_t id) {
                       const LocalExpert expert = local_expert(LogicalExpert{id});
                       return state_of(expert) == AssignmentState::kValid ? id : -1;
                   });
    const TwoPhaseBlocks views = blocks_of(input, layout);
    TwoPhaseLayoutRequest request{views};
    request.sorted_indices =
        make_tensor<void>(layout.sorted_indices, DType::kInt32, {views.sorted_indices.shape[0]});
    request.send_counts =
        make_tensor<void>(layout.send_counts, DType::kInt32, {num_ranks_, num_local_experts_});
    AFD_TRY(two_phase_layout(request, workspace_, parallel_));

    TwoPhaseOffsetsRequest offsets;
    // All ranks are this process: their segments lie behind each other in one buffer.
    offsets.one_buffer = true;
    offsets.send_counts = make_tensor<const void>(
        layout.send_counts, DType::kInt32, {1, num_ranks_, num_local_experts_});
    offsets.base =
        make_tensor<void>(layout.base, DType::kInt64, {1, num_ranks_, num_local_experts_});
    offsets.recv_total = make_tensor<void>(recv_total_, DType::kInt64, {num_ranks_});
    AFD_TRY(two_phase_offsets(offsets, {}, parallel_));
    layout.num_rows =
        static_cast<size_t>(std::reduce(recv_total_, recv_total_ + num_ranks_, int64_t{0}));
    index_rows(input, layout);
    for (size_t expert = 0; expert < config().num_experts + config().num_shared; ++expert) {
        const size_t key = key_of(physical_expert(LogicalExpert{static_cast<int32_t>(expert)}));
        layout.expert_counts[expert] = layout.send_counts[key];
    }
    return {};
}

void TwoPhasePrepareFinalize::index_rows(const MoeInput& input, const Layout& layout) {
    const TwoPhaseBlocks blocks = blocks_of(input, layout);
    // Slots that the walk leaves out, masked ones, have no row.
    std::fill_n(layout.row_index, size_t{input.num_tokens} * input.num_slots(), -1);
    WorkspaceCursor cursor(workspace_);
    const TwoPhaseScratch scratch = take_two_phase_scratch(blocks, cursor);
    std::fill(scratch.next.begin(), scratch.next.end(), 0);
    TwoPhaseWalk walk(blocks, scratch);
    for (size_t block = walk.first_block(); block < walk.end_block(); ++block) {
        walk.for_each(block, [&](const TwoPhasePlace& place) {
            layout.row_index[place.slot] = static_cast<int32_t>(place.row);
        });
    }
}

PhysicalExpert TwoPhasePrepareFinalize::physical_expert(LogicalExpert expert) const {
    const int32_t* entry = &table_[2 * static_cast<size_t>(expert)];
    return {RankId{static_cast<uint32_t>(entry[0])}, LocalExpert{entry[1]}};
}

// Index in the counts.
size_t TwoPhasePrepareFinalize::key_of(PhysicalExpert expert) const {
    return static_cast<size_t>(expert.rank) * num_local_experts_ +
           static_cast<size_t>(expert.local);
}

void TwoPhasePrepareFinalize::group_rows(const MoeInput& input,
                                         const Layout& layout,
                                         Batch& batch) const {
    batch.num_groups = 0;
    const size_t experts_per_layer = config().num_experts + config().num_shared;
    for (size_t expert = 0; expert < config().num_experts + input.num_shared; ++expert) {
        if (layout.expert_counts[expert] == 0) continue;
        // In order of the logical experts, which is that of the rows: rank_table() puts experts on
        // ranks in a line, and a rank's rows lie by local id.
        batch.groups[batch.num_groups++] = {
            .key = static_cast<int64_t>(input.layer_id * experts_per_layer + expert),
            .count = layout.expert_counts[expert]};
    }
}

// Phase 2.
Result<> TwoPhasePrepareFinalize::send(const MoeInput& input, size_t slot, size_t index) {
    if (input.num_tokens > 1 && input.x.stride != input.x.num_cols) {
        return invalid_argument(
            "rows of x are {} elements apart; two_phase takes rows without gaps, here {}",
            with(input.x.stride, input.x.num_cols));
    }
    const Layout& layout = layouts_[index];
    Batch& batch = batches_[slot];
    group_rows(input, layout, batch);
    const bool is_int8 = config().dispatch_dtype == RowDtype::kInt8;
    const Rows<const Bf16> x =
        rounded_->prepare(input.x.slice(0, input.num_tokens), parallel_, profile()).bf16;
    TwoPhasePayloadRequest payload{blocks_of(input, layout)};
    payload.quant_mode = is_int8 ? 1 : -1;
    payload.x = make_tensor<const void>(x.data, DType::kBf16, {input.num_tokens, config().hidden});
    payload.recv_x = make_tensor<void>(
        batch.segment, is_int8 ? DType::kInt8 : DType::kBf16, {layout.num_rows, config().hidden});
    if (is_int8) {
        payload.recv_scale = make_tensor<void>(batch.scale, DType::kFp32, {layout.num_rows});
    }
    return two_phase_payload(payload, workspace_, parallel_);
}

Activations TwoPhasePrepareFinalize::activations(const Ticket& ticket) const {
    const Batch& batch = batches_[ticket.slot()];
    const size_t num_rows = layouts_[layout_of(ticket)].num_rows;
    const size_t hidden = config().hidden;
    GroupedActivations grouped{.x = {}, .groups = {batch.groups, batch.num_groups}};
    if (config().dispatch_dtype == RowDtype::kInt8) {
        const auto* values = reinterpret_cast<const int8_t*>(batch.segment);
        grouped.x = {.int8 = {make_rows(values, num_rows, hidden), batch.scale}};
    } else {
        const auto* values = reinterpret_cast<const Bf16*>(batch.segment);
        grouped.x = {.bf16 = make_rows(values, num_rows, hidden)};
    }
    return grouped;
}

}  // namespace afd::ops
