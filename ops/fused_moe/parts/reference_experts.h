// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReferenceExperts: the same part in plain loops (ops/reference), for tests. Slow, allocates.

#include <span>

#include "ops/fused_moe/experts.h"
#include "ops/reference/expert_ffn.h"

namespace afd::ops {

class ReferenceExperts final : public Experts {
  public:
    // weights[layer · experts_per_layer + local id], which outlive the object; an empty one: no
    // such expert. int4 weights are given dequantised.
    ReferenceExperts(std::span<const reference::ExpertWeights> weights,
                     size_t experts_per_layer,
                     size_t hidden);

    static constexpr ExpertsCapability kCapability{
        .name = "reference",
        .activation_formats = bit(ActivationFormat::kStandard) | bit(ActivationFormat::kBatched) |
                              bit(ActivationFormat::kGrouped),
        .activations = kAllActivations,
        .biases = kWithOrWithoutBias,
        .quantisations = bit(ExpertQuantisation::kNone) | bit(ExpertQuantisation::kInt8) |
                         bit(ExpertQuantisation::kInt4) | bit(ExpertQuantisation::kFp8),
        .weight_and_reduce = WeightAndReduceKind::kDelegate,
        .takes_int8_rows = true,
        .supports_chunking = true,
    };
    // The record, narrowed to the activation and bias of the weights.
    const ExpertsCapability& capability() const override { return capability_; }

    WorkspaceShapes workspace_shapes(const ActivationSizes& sizes) const override;
    Result<> apply(const Activations& activations,
                   Rows<Bf16> output,
                   const ExpertsResources& resources) override;

  private:
    Result<> apply(const StandardActivations& standard, Rows<Bf16> output) const;
    Result<> apply(const BatchedActivations& batched, Rows<Bf16> output) const;
    Result<> apply(const GroupedActivations& grouped, Rows<Bf16> output) const;
    Result<> run_row(size_t key, const ActivationRows& x, Bf16* out) const;

    std::span<const reference::ExpertWeights> weights_;
    size_t experts_per_layer_;
    size_t hidden_;
    ExpertsCapability capability_ = kCapability;
};

}  // namespace afd::ops
