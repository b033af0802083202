// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReferenceExperts: the same part in plain loops (ops/reference), for tests. Slow, allocates.

#include <vector>

#include "ops/fused_moe/experts.h"
#include "ops/reference/expert_ffn.h"

namespace afd::ops {

class ReferenceExperts final : public Experts {
  public:
    // weights[layer · experts_per_layer + local id]; the views' memory outlives the object.
    ReferenceExperts(std::vector<reference::ExpertWeights> weights,
                     size_t experts_per_layer,
                     size_t hidden);

    static constexpr ExpertsCapability kCapability{
        .name = "reference",
        .activation_format = ActivationFormat::kStandard,
        .weight_and_reduce = WeightAndReduceKind::kContiguous,
        .supports_chunking = true,
    };
    const ExpertsCapability& capability() const override { return kCapability; }

    WorkspaceShapes workspace_shapes(size_t num_tokens, size_t num_slots) const override;
    Result<void> apply(const Activations& activations,
                       Rows<Bf16> output,
                       const ExpertsWorkspaces& workspaces,
                       Parallel& parallel) override;

  private:
    std::vector<reference::ExpertWeights> weights_;
    size_t experts_per_layer_;
    size_t hidden_;
};

}  // namespace afd::ops
