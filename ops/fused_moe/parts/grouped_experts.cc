// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/parts/grouped_experts.h"

#include <algorithm>
#include <string>

#include "ops/operators/moe_init_routing.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

// What workspace13 holds.
struct Permuted {
    std::byte* x;         // [num_rows, hidden] bf16 or int8, sorted by expert.
    float* scale;         // [num_rows], with int8.
    int32_t* ids;         // [num_rows] local ids of the slots.
    int32_t* order;       // [num_rows] slot of a sorted row.
    ExpertGroup* groups;  // [experts_per_layer]
    std::span<std::byte> workspace;
};

size_t permuted_bytes(const ActivationSizes& sizes, size_t hidden, size_t experts_per_layer) {
    const size_t num_rows = sizes.num_rows * sizes.num_slots;
    return workspace_bytes_of<Bf16>(num_rows * hidden) + workspace_bytes_of<float>(num_rows) +
           2 * workspace_bytes_of<int32_t>(num_rows) +
           workspace_bytes_of<ExpertGroup>(experts_per_layer) +
           moe_init_routing_v3_workspace_bytes(sizes.num_rows, sizes.num_slots, experts_per_layer);
}

Permuted take(std::span<std::byte> bytes, size_t rows, size_t hidden, size_t experts_per_layer) {
    WorkspaceCursor cursor(bytes);
    Permuted permuted{};
    // In bytes of bf16 for int8 rows, too: one size for both, and half of it is left over.
    permuted.x = cursor.take<std::byte>(rows * hidden * sizeof(Bf16));
    permuted.scale = cursor.take<float>(rows);
    permuted.ids = cursor.take<int32_t>(rows);
    permuted.order = cursor.take<int32_t>(rows);
    permuted.groups = cursor.take<ExpertGroup>(experts_per_layer);
    permuted.workspace = cursor.rest();
    return permuted;
}

ExpertsCapability capability_of(const ExpertTable& experts) {
    ExpertsCapability record = narrowed(
        grouped_record(quantisation_of(experts)), experts.activation(), experts.has_bias());
    record.has_smooth_scales = experts.has_smooth();
    return record;
}

// Local ids and rows by expert: MoeInitRoutingV3 over the experts of one layer.
MoeInitRoutingV3Request request_for(const StandardActivations& standard,
                                    size_t hidden,
                                    size_t experts_per_layer,
                                    const Permuted& permuted) {
    const ActivationRows& x = standard.x;
    const size_t num_rows = x.num_rows() * standard.num_slots;
    const DType dtype = x.is_int8() ? DType::kInt8 : DType::kBf16;
    const void* rows = x.is_int8() ? static_cast<const void*>(x.int8.values.data) : x.bf16.data;
    MoeInitRoutingV3Request request;
    request.expert_num = static_cast<int64_t>(experts_per_layer);
    // Pairs of expert and count are the group list that the experts take; the index in scatter
    // order says where each sorted row goes back to.
    request.expert_tokens_num_type = 2;
    request.expert_tokens_num_flag = true;
    request.row_idx_type = 1;
    request.x = make_tensor<const void>(rows, dtype, {x.num_rows(), hidden});
    request.expert_idx =
        make_tensor<const void>(permuted.ids, DType::kInt32, {x.num_rows(), standard.num_slots});
    request.expanded_x = make_tensor<void>(permuted.x, dtype, {num_rows, hidden});
    request.expanded_row_idx = make_tensor<void>(permuted.order, DType::kInt32, {num_rows});
    request.expert_tokens_count_or_cumsum =
        make_tensor<void>(permuted.groups, DType::kInt64, {experts_per_layer, 2});
    if (x.is_int8()) {
        request.scale = make_tensor<const void>(x.int8.row_scale, DType::kFp32, {x.num_rows()});
        request.expanded_scale = make_tensor<void>(permuted.scale, DType::kFp32, {num_rows});
    }
    return request;
}

}  // namespace

ExpertQuantisation quantisation_of(WeightFormat format) {
    if (format == WeightFormat::kInt8) return ExpertQuantisation::kInt8;
    if (format == WeightFormat::kFp8Block128) return ExpertQuantisation::kFp8;
    return is_int4(format) ? ExpertQuantisation::kInt4 : ExpertQuantisation::kNone;
}

ExpertQuantisation quantisation_of(const ExpertTable& experts) {
    if (experts.has_int8()) return ExpertQuantisation::kInt8;
    for (const PackedExpert& expert : experts.experts()) {
        const ExpertQuantisation quantisation = quantisation_of(expert.gate_up.format());
        if (quantisation != ExpertQuantisation::kNone) return quantisation;
    }
    return ExpertQuantisation::kNone;
}

const ExpertsCapability& grouped_record(ExpertQuantisation quantisation) {
    switch (quantisation) {
        case ExpertQuantisation::kNone:
            return kGroupedBf16;
        case ExpertQuantisation::kInt8:
            return kGroupedInt8;
        case ExpertQuantisation::kInt4:
            return kGroupedInt4;
        case ExpertQuantisation::kFp8:
            return kGroupedFp8;
    }
    AFD_ASSERT(false, "quantisation %d", static_cast<int>(quantisation));
    return kGroupedBf16;
}

GroupedExperts::GroupedExperts(const ExpertTable& experts, size_t experts_per_layer)
    : experts_(&experts),
      capability_(capability_of(experts)),
      experts_per_layer_(experts_per_layer) {
    AFD_ASSERT(experts_per_layer > 0 && experts.num_keys() % experts_per_layer == 0,
               "%zu keys, %zu experts per layer",
               experts.num_keys(),
               experts_per_layer);
}

WorkspaceShapes GroupedExperts::workspace_shapes(const ActivationSizes& sizes) const {
    const bool permutes = sizes.format == ActivationFormat::kStandard;
    const size_t num_rows = permutes ? sizes.num_rows * sizes.num_slots : sizes.num_rows;
    const size_t num_keys = permutes ? experts_per_layer_ : experts_->num_keys();
    return {.workspace13_bytes =
                permutes ? permuted_bytes(sizes, experts_->hidden(), experts_per_layer_) : 0,
            .workspace2_bytes =
                grouped_ffn_workspace_bytes(*experts_, num_rows, std::min(num_rows, num_keys)),
            .output_rows = num_rows};
}

Result<> GroupedExperts::check(const StandardActivations& standard) const {
    const size_t num_layers = experts_->num_keys() / experts_per_layer_;
    if (standard.layer_id >= num_layers) {
        return invalid_argument("layer_id is {}; experts of layers 0 ... {} are loaded",
                                with(standard.layer_id, num_layers - 1));
    }
    for (size_t i = 0; i < standard.x.num_rows() * standard.num_slots; ++i) {
        const auto id = static_cast<int32_t>(standard.local_ids[i]);
        if (id < static_cast<int32_t>(experts_per_layer_)) continue;
        return invalid_argument("local expert id is {}; a layer has {}",
                                with(id, experts_per_layer_));
    }
    const Rows<const Bf16>& x = standard.x.bf16;
    if (x.num_rows > 1 && x.stride != x.num_cols) {
        return invalid_argument(
            "rows of x are {} elements apart; {} takes rows without gaps, here {}",
            with(x.stride, capability_.name, x.num_cols));
    }
    return {};
}

// Sorts and copies the rows. `order` gets the slot of each sorted row.
GroupedActivations GroupedExperts::permute(const StandardActivations& standard,
                                           std::span<std::byte> workspace,
                                           const int32_t** order,
                                           Parallel& parallel) const {
    const size_t hidden = experts_->hidden();
    const size_t num_slots = standard.x.num_rows() * standard.num_slots;
    const Permuted permuted = take(workspace, num_slots, hidden, experts_per_layer_);
    for (size_t i = 0; i < num_slots; ++i) {
        permuted.ids[i] = static_cast<int32_t>(standard.local_ids[i]);
    }
    moe_init_routing_v3_checked(
        request_for(standard, hidden, experts_per_layer_, permuted), permuted.workspace, parallel);
    size_t num_groups = 0;
    size_t num_rows = 0;
    const auto first_key = static_cast<int64_t>(standard.layer_id * experts_per_layer_);
    // Experts with rows come first, then zeros. Ids count within the layer, keys through all
    // layers.
    for (; num_groups < experts_per_layer_ && permuted.groups[num_groups].count > 0; ++num_groups) {
        num_rows += static_cast<size_t>(permuted.groups[num_groups].count);
        permuted.groups[num_groups].key += first_key;
    }
    *order = permuted.order;
    GroupedActivations grouped{.x = {}, .groups = {permuted.groups, num_groups}};
    if (standard.x.is_int8()) {
        const auto* values = reinterpret_cast<const int8_t*>(permuted.x);
        grouped.x = {.int8 = {make_rows(values, num_rows, hidden), permuted.scale}};
    } else {
        const auto* values = reinterpret_cast<const Bf16*>(permuted.x);
        grouped.x = {.bf16 = make_rows(values, num_rows, hidden)};
    }
    return grouped;
}

Result<> GroupedExperts::apply(const Activations& activations,
                               Rows<Bf16> output,
                               const ExpertsResources& resources) {
    GroupedActivations grouped;
    const int32_t* order = nullptr;
    if (const auto* standard = std::get_if<StandardActivations>(&activations)) {
        const StageTimer timer(resources.profile, MoeStage::kPermute);
        AFD_TRY(check(*standard));
        grouped = permute(*standard, resources.workspace13, &order, *resources.parallel);
    } else {
        grouped = std::get<GroupedActivations>(activations);
    }
    return grouped_ffn({.experts = experts_,
                        .groups = grouped.groups,
                        .x = grouped.x.bf16,
                        .x_int8 = grouped.x.int8,
                        .y = output,
                        .row_index = order,
                        .profile = resources.profile},
                       resources.workspace2,
                       *resources.parallel);
}

}  // namespace afd::ops
