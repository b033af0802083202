// SPDX-License-Identifier: Apache-2.0
#pragma once

// GroupedExperts: bf16 experts of this process over Standard or Grouped activations.
//
// Standard: permute is a stable counting sort by expert, unpermute a scattered store of the down
// projection. Grouped: the rows are sorted already and stay where they are.
// Expert key = layer · experts_per_layer + local id.

#include "ops/fused_moe/experts.h"
#include "ops/grouped_ffn.h"

namespace afd::ops {

class GroupedExperts final : public Experts {
  public:
    // `experts` outlives the object. REQUIRES: its keys are a multiple of experts_per_layer.
    GroupedExperts(const ExpertTable& experts, size_t experts_per_layer);

    static constexpr ExpertsCapability kCapability{
        .name = "grouped_bf16",
        .activation_formats = bit(ActivationFormat::kStandard) | bit(ActivationFormat::kGrouped),
        .weight_and_reduce = WeightAndReduceKind::kDelegate,
        .supports_chunking = true,
    };
    const ExpertsCapability& capability() const override { return kCapability; }

    WorkspaceShapes workspace_shapes(const ActivationSizes& sizes) const override;
    Result<void> apply(const Activations& activations,
                       Rows<Bf16> output,
                       const ExpertsResources& resources) override;

  private:
    Result<GroupedActivations> permute(const StandardActivations& standard,
                                       std::span<std::byte> workspace,
                                       const int32_t** order) const;

    const ExpertTable* experts_;
    size_t experts_per_layer_;
};

}  // namespace afd::ops
