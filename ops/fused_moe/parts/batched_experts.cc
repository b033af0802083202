// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/parts/batched_experts.h"

#include <algorithm>

#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::ops {

BatchedExperts::BatchedExperts(const ExpertTable& experts, size_t experts_per_layer)
    : experts_(&experts),
      experts_per_layer_(experts_per_layer),
      capability_(narrowed(kCapability, experts.activation(), experts.has_bias())) {
    AFD_ASSERT(experts_per_layer > 0 && experts.num_keys() % experts_per_layer == 0,
               "%zu keys, %zu experts per layer",
               experts.num_keys(),
               experts_per_layer);
}

WorkspaceShapes BatchedExperts::workspace_shapes(const ActivationSizes& sizes) const {
    // A token has a row with each of its experts at most. Where more tokens than places share them,
    // apply() goes in several steps.
    const size_t num_rows = sizes.num_rows * std::min(sizes.num_slots, experts_per_layer_);
    return {
        .workspace13_bytes = workspace_bytes_of<ExpertGroup>(experts_per_layer_) +
                             workspace_bytes_of<int32_t>(experts_per_layer_),
        .workspace2_bytes = grouped_ffn_workspace_bytes(*experts_, num_rows, experts_per_layer_),
        .output_rows = sizes.num_rows * experts_per_layer_};
}

Result<> BatchedExperts::apply(const Activations& activations,
                               Rows<Bf16> output,
                               const ExpertsResources& resources) {
    const auto& batched = std::get<BatchedActivations>(activations);
    AFD_ASSERT(batched.num_local_experts <= experts_per_layer_,
               "%zu local experts; a layer has %zu",
               batched.num_local_experts,
               experts_per_layer_);
    WorkspaceCursor cursor(resources.workspace13);
    auto* groups = cursor.take<ExpertGroup>(experts_per_layer_);
    auto* first_rows = cursor.take<int32_t>(experts_per_layer_);
    size_t num_groups = 0;
    for (size_t expert = 0; expert < batched.num_local_experts; ++expert) {
        const Count count = batched.num_tokens_of(expert);
        AFD_ASSERT(fits(count, batched.max_num_tokens),
                   "expert %zu has %s rows for %s places",
                   expert,
                   count.text().c_str(),
                   batched.max_num_tokens.text().c_str());
        if (count == Count(0)) continue;
        first_rows[num_groups] = static_cast<int32_t>(batched.row_of(expert, 0));
        groups[num_groups++] = {
            .key = static_cast<int64_t>(batched.layer_id * experts_per_layer_ + expert),
            .count = static_cast<int64_t>(count.value())};
    }
    size_t first = 0;
    while (first < num_groups) {
        const size_t count = groups_that_fit({groups + first, num_groups - first}, resources);
        AFD_TRY(grouped_ffn({.experts = experts_,
                             .groups = {groups + first, count},
                             .x = batched.x.bf16,
                             .y = output,
                             .first_rows = first_rows + first,
                             .profile = resources.profile},
                            resources.workspace2,
                            *resources.parallel));
        first += count;
    }
    return {};
}

// With fewer places than tokens there can be more rows than the workspace was declared for, though
// never of one expert. No row depends on who goes with it.
size_t BatchedExperts::groups_that_fit(std::span<const ExpertGroup> groups,
                                       const ExpertsResources& resources) const {
    size_t num_rows = 0;
    size_t count = 0;
    while (count < groups.size()) {
        num_rows += static_cast<size_t>(groups[count].count);
        const size_t bytes = grouped_ffn_workspace_bytes(*experts_, num_rows, experts_per_layer_);
        if (count > 0 && bytes > resources.workspace2.size()) break;
        ++count;
    }
    return count;
}

}  // namespace afd::ops
