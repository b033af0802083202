// SPDX-License-Identifier: Apache-2.0
#pragma once

// GroupedExperts: bf16 experts of this process over Standard activations.
//
// Permute is a stable counting sort by expert, unpermute a scattered store of the down projection.
// Expert key = layer · experts_per_layer + local id.

#include "ops/fused_moe/experts.h"
#include "ops/grouped_ffn.h"

namespace afd::ops {

class GroupedExperts final : public Experts {
  public:
    // `experts` outlives the object. REQUIRES: its keys are a multiple of experts_per_layer.
    GroupedExperts(const ExpertTable& experts, size_t experts_per_layer);

    static constexpr ExpertsCapability kCapability{
        .name = "grouped-bf16",
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
    const ExpertTable* experts_;
    size_t experts_per_layer_;
};

}  // namespace afd::ops
