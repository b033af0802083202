// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchedExperts: bf16 experts of this process over Batched activations.
//
// Every expert's rows lie at its own places already, so nothing is permuted; the output has the
// same places. Expert key = layer · experts_per_layer + local id.

#include "ops/experts/grouped_ffn.h"
#include "ops/fused_moe/experts.h"

namespace afd::ops {

class BatchedExperts final : public Experts {
  public:
    // `experts` outlives the object. REQUIRES: its keys are a multiple of experts_per_layer.
    BatchedExperts(const ExpertTable& experts, size_t experts_per_layer);

    static constexpr ExpertsCapability kCapability{
        .name = "batched_bf16",
        .activation_formats = bit(ActivationFormat::kBatched),
        .activations = kAllActivations,
        .biases = kWithOrWithoutBias,
        .weight_and_reduce = WeightAndReduceKind::kNaiveBatched,
    };
    // The record, narrowed to the table's activation and bias.
    const ExpertsCapability& capability() const override { return capability_; }

    WorkspaceShapes workspace_shapes(const ActivationSizes& sizes) const override;
    Result<> apply(const Activations& activations,
                   Rows<Bf16> output,
                   const ExpertsResources& resources) override;

  private:
    size_t groups_that_fit(std::span<const ExpertGroup> groups,
                           const ExpertsResources& resources) const;

    const ExpertTable* experts_;
    size_t experts_per_layer_;
    ExpertsCapability capability_;
};

}  // namespace afd::ops
