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
    std::byte* x;    // [num_rows, hidden] bf16 or int8, sorted by expert.
    float* scale;    // [num_rows], with int8.
    int32_t* keys;   // [num_rows] local id of a slot, or -1.
    int32_t* order;  // [num_rows] slot of a sorted row.
    int32_t* sort_scratch;
    ExpertGroup* groups;  // [experts_per_layer]
};

size_t permuted_bytes(size_t num_rows, size_t hidden, size_t experts_per_layer) {
    return workspace_bytes_of<Bf16>(num_rows * hidden) + workspace_bytes_of<float>(num_rows) +
           2 * workspace_bytes_of<int32_t>(num_rows) +
           workspace_bytes_of<int32_t>(expert_sort_scratch(num_rows, experts_per_layer)) +
           workspace_bytes_of<ExpertGroup>(experts_per_layer);
}

Permuted take(std::span<std::byte> bytes, size_t rows, size_t hidden, size_t experts_per_layer) {
    WorkspaceCursor cursor(bytes);
    Permuted permuted{};
    permuted.x = cursor.take<std::byte>(rows * hidden * sizeof(Bf16));
    permuted.scale = cursor.take<float>(rows);
    permuted.keys = cursor.take<int32_t>(rows);
    permuted.order = cursor.take<int32_t>(rows);
    permuted.sort_scratch = cursor.take<int32_t>(expert_sort_scratch(rows, experts_per_layer));
    permuted.groups = cursor.take<ExpertGroup>(experts_per_layer);
    return permuted;
}

const ExpertsCapability& record_of(ExpertQuantisation quantisation) {
    switch (quantisation) {
        case ExpertQuantisation::kNone:
            return kGroupedBf16;
        case ExpertQuantisation::kInt8:
            return kGroupedInt8;
        case ExpertQuantisation::kInt4:
            return kGroupedInt4;
    }
    AFD_ASSERT(false, "quantisation %d", static_cast<int>(quantisation));
    return kGroupedBf16;
}

// Elements that one task copies: some microseconds of work.
constexpr size_t kElementsPerTask = size_t{1} << 16;

// The rows of `order`, in this order.
ActivationRows gather_rows(const ActivationRows& x,
                           size_t num_slots,
                           size_t hidden,
                           std::span<const int32_t> order,
                           const Permuted& permuted,
                           Parallel& parallel) {
    auto* bf16 = reinterpret_cast<Bf16*>(permuted.x);
    auto* int8 = reinterpret_cast<int8_t*>(permuted.x);
    const size_t rows_per_task = kElementsPerTask / std::max<size_t>(hidden, 1) + 1;
    const auto copy = [&](size_t task, unsigned) {
        const size_t last = std::min(order.size(), (task + 1) * rows_per_task);
        for (size_t i = task * rows_per_task; i < last; ++i) {
            const size_t token = static_cast<size_t>(order[i]) / num_slots;
            if (x.is_int8()) {
                std::copy_n(x.int8.values.row(token), hidden, int8 + i * hidden);
                permuted.scale[i] = x.int8.row_scale[token];
            } else {
                std::copy_n(x.bf16.row(token), hidden, bf16 + i * hidden);
            }
        }
    };
    const size_t num_tasks = (order.size() + rows_per_task - 1) / rows_per_task;
    if (num_tasks == 1) {
        copy(0, 0);
    } else if (num_tasks > 1) {
        parallel.run(num_tasks, copy);
    }
    if (!x.is_int8()) return {.bf16 = make_rows<const Bf16>(bf16, order.size(), hidden)};
    return {.int8 = {make_rows<const int8_t>(int8, order.size(), hidden), permuted.scale}};
}

}  // namespace

ExpertQuantisation quantisation_of(const ExpertTable& experts) {
    if (experts.has_int8()) return ExpertQuantisation::kInt8;
    for (size_t key = 0; key < experts.num_keys(); ++key) {
        if (is_int4(experts.at(key).gate_up.format())) return ExpertQuantisation::kInt4;
    }
    return ExpertQuantisation::kNone;
}

GroupedExperts::GroupedExperts(const ExpertTable& experts, size_t experts_per_layer)
    : experts_(&experts),
      capability_(&record_of(quantisation_of(experts))),
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
                permutes ? permuted_bytes(num_rows, experts_->hidden(), experts_per_layer_) : 0,
            .workspace2_bytes =
                grouped_ffn_workspace_bytes(*experts_, num_rows, std::min(num_rows, num_keys)),
            .output_rows = num_rows};
}

// Sorts and copies the rows. `order` gets the slot of each sorted row.
Result<GroupedActivations> GroupedExperts::permute(const StandardActivations& standard,
                                                   std::span<std::byte> workspace,
                                                   const int32_t** order,
                                                   Parallel& parallel) const {
    const size_t num_layers = experts_->num_keys() / experts_per_layer_;
    if (standard.layer_id >= num_layers) {
        return Error{Code::kInvalidArgument,
                     "layer_id is " + std::to_string(standard.layer_id) +
                         "; experts of layers 0 ... " + std::to_string(num_layers - 1) +
                         " are loaded"};
    }
    const size_t num_slots = standard.num_slots;
    const size_t num_rows = standard.x.num_rows() * num_slots;
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
                                             permuted.sort_scratch,
                                             permuted.order,
                                             nullptr,
                                             permuted.groups,
                                             parallel);
    const auto first_key = static_cast<int64_t>(standard.layer_id * experts_per_layer_);
    for (size_t g = 0; g < sorted.num_groups; ++g) permuted.groups[g].key += first_key;
    *order = permuted.order;
    return GroupedActivations{
        .x = gather_rows(
            standard.x, num_slots, hidden, {permuted.order, sorted.num_rows}, permuted, parallel),
        .groups = {permuted.groups, sorted.num_groups}};
}

Result<void> GroupedExperts::apply(const Activations& activations,
                                   Rows<Bf16> output,
                                   const ExpertsResources& resources) {
    GroupedActivations grouped;
    const int32_t* order = nullptr;
    if (const auto* standard = std::get_if<StandardActivations>(&activations)) {
        const StageTimer timer(resources.profile, MoeStage::kPermute);
        AFD_ASSIGN(grouped, permute(*standard, resources.workspace13, &order, *resources.parallel));
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
