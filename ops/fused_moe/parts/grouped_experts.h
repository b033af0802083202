// SPDX-License-Identifier: Apache-2.0
#pragma once

// GroupedExperts: experts of this process over Standard or Grouped activations, with weights in any
// format that ExpertTable holds.
//
// Standard: permute is MoeInitRoutingV3 (rows of x without gaps), unpermute a scattered store of
// the down projection. Grouped: the rows are sorted already and stay where they are.
// Expert key = layer · experts_per_layer + local id.

#include "ops/experts/grouped_ffn.h"
#include "ops/fused_moe/experts.h"

namespace afd::ops {

// The four differ in the weights only.
inline constexpr ExpertsCapability kGroupedBf16{
    .name = "grouped_bf16",
    .activation_formats = bit(ActivationFormat::kStandard) | bit(ActivationFormat::kGrouped),
    .activations = kAllActivations,
    .biases = kWithOrWithoutBias,
    .quantisations = bit(ExpertQuantisation::kNone),
    .weight_and_reduce = WeightAndReduceKind::kDelegate,
    .supports_chunking = true,
};
inline constexpr ExpertsCapability kGroupedInt8{
    .name = "grouped_int8",
    .activation_formats = kGroupedBf16.activation_formats,
    .activations = kAllActivations,
    .biases = kWithOrWithoutBias,
    .quantisations = bit(ExpertQuantisation::kInt8),
    .weight_and_reduce = WeightAndReduceKind::kDelegate,
    .takes_int8_rows = true,
    .supports_chunking = true,
};
inline constexpr ExpertsCapability kGroupedInt4{
    .name = "grouped_int4",
    .activation_formats = kGroupedBf16.activation_formats,
    .activations = kAllActivations,
    .biases = kWithOrWithoutBias,
    .quantisations = bit(ExpertQuantisation::kInt4),
    .weight_and_reduce = WeightAndReduceKind::kDelegate,
    .supports_chunking = true,
};
inline constexpr ExpertsCapability kGroupedFp8{
    .name = "grouped_fp8",
    .activation_formats = kGroupedBf16.activation_formats,
    .activations = kAllActivations,
    .biases = kWithOrWithoutBias,
    .quantisations = bit(ExpertQuantisation::kFp8),
    .weight_and_reduce = WeightAndReduceKind::kDelegate,
    .supports_chunking = true,
};

// Of experts in that format. mxfp4 has the rows of bf16.
ExpertQuantisation quantisation_of(WeightFormat format);
// Of a table's experts: int8, int4 or fp8 as soon as one of them is.
ExpertQuantisation quantisation_of(const ExpertTable& experts);

// The record of GroupedExperts with such weights.
const ExpertsCapability& grouped_record(ExpertQuantisation quantisation);

class GroupedExperts final : public Experts {
  public:
    // `experts` outlives the object. REQUIRES: its keys are a multiple of experts_per_layer.
    GroupedExperts(const ExpertTable& experts, size_t experts_per_layer);

    // What is the same whatever the weights are.
    static constexpr ExpertsCapability kCapability = kGroupedBf16;
    // grouped_record() of quantisation_of(experts), narrowed to their activation and bias, and
    // whether they have smooth scales.
    const ExpertsCapability& capability() const override { return capability_; }

    WorkspaceShapes workspace_shapes(const ActivationSizes& sizes) const override;
    Result<> apply(const Activations& activations,
                   Rows<Bf16> output,
                   const ExpertsResources& resources) override;

  private:
    Result<> check(const StandardActivations& standard) const;
    GroupedActivations permute(const StandardActivations& standard,
                               std::span<std::byte> workspace,
                               const int32_t** order,
                               Parallel& parallel) const;

    const ExpertTable* experts_;
    ExpertsCapability capability_;
    size_t experts_per_layer_;
};

}  // namespace afd::ops
