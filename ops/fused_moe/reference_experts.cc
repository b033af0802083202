// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/reference_experts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "proto/check.h"

namespace afd::ops {

ReferenceExperts::ReferenceExperts(std::vector<reference::ExpertWeights> weights,
                                   size_t experts_per_layer,
                                   size_t hidden)
    : weights_(std::move(weights)), experts_per_layer_(experts_per_layer), hidden_(hidden) {}

WorkspaceShapes ReferenceExperts::workspace_shapes(size_t num_tokens, size_t num_slots) const {
    return {.workspace13_bytes = 0, .workspace2_bytes = 0, .output_rows = num_tokens * num_slots};
}

Result<void> ReferenceExperts::apply(const Activations& activations,
                                     Rows<Bf16> output,
                                     const ExpertsWorkspaces&,
                                     Parallel&) {
    const auto* standard = std::get_if<StandardActivations>(&activations);
    AFD_ASSERT(standard != nullptr, "reference experts take standard activations");
    for (size_t i = 0; i < standard->x.num_rows * standard->num_slots; ++i) {
        const auto id = static_cast<int32_t>(standard->local_ids[i]);
        if (id < 0) continue;
        const size_t key = standard->layer_id * experts_per_layer_ + static_cast<size_t>(id);
        if (static_cast<size_t>(id) >= experts_per_layer_ || key >= weights_.size()) {
            return Error{Code::kInvalidArgument,
                         "layer " + std::to_string(standard->layer_id) + " has no local expert " +
                             std::to_string(id)};
        }
        const reference::Matrix x = reference::widen(standard->x.slice(i / standard->num_slots, 1));
        const std::vector<Bf16> row =
            reference::narrow(reference::expert_ffn(x, weights_[key], reference::Rounding::kBf16));
        std::copy_n(row.data(), hidden_, output.row(i));
    }
    return {};
}

}  // namespace afd::ops
