// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/grouped_experts.h"

#include <algorithm>
#include <string>

#include "ops/expert_sort.h"
#include "ops/workspace.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

// What workspace13 holds.
struct Permuted {
    Bf16* x;              // [num_rows, hidden], sorted by expert.
    int32_t* keys;        // [num_rows] local id of a slot, or -1.
    int32_t* order;       // [num_rows] slot of a sorted row.
    int32_t* next;        // [experts_per_layer]
    ExpertGroup* groups;  // [experts_per_layer]
};

size_t permuted_bytes(size_t num_rows, size_t hidden, size_t experts_per_layer) {
    return workspace_bytes_of<Bf16>(num_rows * hidden) + 2 * workspace_bytes_of<int32_t>(num_rows) +
           workspace_bytes_of<int32_t>(experts_per_layer) +
           workspace_bytes_of<ExpertGroup>(experts_per_layer);
}

Permuted take(std::span<std::byte> bytes, size_t rows, size_t hidden, size_t experts_per_layer) {
    WorkspaceCursor cursor(bytes);
    Permuted permuted{};
    permuted.x = cursor.take<Bf16>(rows * hidden);
    permuted.keys = cursor.take<int32_t>(rows);
    permuted.order = cursor.take<int32_t>(rows);
    permuted.next = cursor.take<int32_t>(experts_per_layer);
    permuted.groups = cursor.take<ExpertGroup>(experts_per_layer);
    return permuted;
}

}  // namespace

GroupedExperts::GroupedExperts(const ExpertTable& experts, size_t experts_per_layer)
    : experts_(&experts), experts_per_layer_(experts_per_layer) {
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
                permutes ? permuted_bytes(num_rows, experts_->hidden(), experts_per_layer_) : 0,
            .workspace2_bytes =
                grouped_ffn_workspace_bytes(*experts_, num_rows, std::min(num_rows, num_keys)),
            .output_rows = num_rows};
}

// Sorts and copies the rows. `order` gets the slot of each sorted row.
Result<GroupedActivations> GroupedExperts::permute(const StandardActivations& standard,
                                                   std::span<std::byte> workspace,
                                                   const int32_t** order) const {
    const size_t num_layers = experts_->num_keys() / experts_per_layer_;
    if (standard.layer_id >= num_layers) {
        return Error{Code::kInvalidArgument,
                     "layer_id is " + std::to_string(standard.layer_id) +
                         "; experts of layers 0 ... " + std::to_string(num_layers - 1) +
                         " are loaded"};
    }
    const size_t num_slots = standard.num_slots;
    const size_t num_rows = standard.x.num_rows * num_slots;
    const size_t hidden = experts_->hidden();
    const Permuted permuted = take(workspace, num_rows, hidden, experts_per_layer_);
    for (size_t i = 0; i < num_rows; ++i) {
        const auto id = static_cast<int32_t>(standard.local_ids[i]);
        if (id >= static_cast<int32_t>(experts_per_layer_)) {
            return Error{Code::kInvalidArgument,
                         "local expert id is " + std::to_string(id) + "; a layer has " +
                             std::to_string(experts_per_layer_)};
        }
        permuted.keys[i] = id;
    }
    const ExpertSort sorted = sort_by_expert({permuted.keys, num_rows},
                                             experts_per_layer_,
                                             permuted.next,
                                             permuted.order,
                                             permuted.groups);
    const auto first_key = static_cast<int64_t>(standard.layer_id * experts_per_layer_);
    for (size_t g = 0; g < sorted.num_groups; ++g) permuted.groups[g].key += first_key;
    for (size_t i = 0; i < sorted.num_rows; ++i) {
        const Bf16* source = standard.x.row(static_cast<size_t>(permuted.order[i]) / num_slots);
        std::copy_n(source, hidden, permuted.x + i * hidden);
    }
    *order = permuted.order;
    return GroupedActivations{.x = make_rows<const Bf16>(permuted.x, sorted.num_rows, hidden),
                              .groups = {permuted.groups, sorted.num_groups}};
}

Result<void> GroupedExperts::apply(const Activations& activations,
                                   Rows<Bf16> output,
                                   const ExpertsResources& resources) {
    GroupedActivations grouped;
    const int32_t* order = nullptr;
    if (const auto* standard = std::get_if<StandardActivations>(&activations)) {
        const StageTimer timer(resources.profile, MoeStage::kPermute);
        AFD_ASSIGN(grouped, permute(*standard, resources.workspace13, &order));
    } else {
        grouped = std::get<GroupedActivations>(activations);
    }
    return grouped_ffn({.experts = experts_,
                        .groups = grouped.groups,
                        .x = grouped.x,
                        .y = output,
                        .row_index = order},
                       resources.workspace2,
                       *resources.parallel);
}

}  // namespace afd::ops
