// SPDX-License-Identifier: Apache-2.0
#pragma once

// The feature matrix of the fused-MoE framework: every PrepareFinalize with every Experts part, and
// what they do together or why not. `afd-op moe-matrix` prints it, docs/fused_moe.md an extract.

#include <string>
#include <vector>

#include "ops/fused_moe/plan/registry.h"

namespace afd::ops {

// Something that a configuration may ask for.
enum class MoeFeature : uint8_t {
    kPlain,
    kChunked,
    kInt8Dispatch,
    kFp8Dispatch,
    kSharedStage,
    kUnrouted,
    kWeightOnInput,
};
inline constexpr MoeFeature kMoeFeatures[] = {MoeFeature::kPlain,
                                              MoeFeature::kChunked,
                                              MoeFeature::kInt8Dispatch,
                                              MoeFeature::kFp8Dispatch,
                                              MoeFeature::kSharedStage,
                                              MoeFeature::kUnrouted,
                                              MoeFeature::kWeightOnInput};

std::string_view name_of(MoeFeature feature);

// `config` asking for the feature.
FusedMoeConfig with_feature(FusedMoeConfig config, MoeFeature feature);

// Two parts with one of the weight formats that the experts serve.
struct MoePair {
    const PrepareFinalizeEntry* prepare_finalize = nullptr;
    const ExpertsEntry* experts = nullptr;
    ExpertQuantisation quantisation = ExpertQuantisation::kNone;
};

// All pairs, legal or not, in the order of the registry.
std::vector<MoePair> moe_pairs(std::span<const ExpertsEntry> experts = experts_parts());

// Markdown: the parts, the pairs with their features, and the reasons of what is refused.
std::string feature_matrix();

}  // namespace afd::ops
