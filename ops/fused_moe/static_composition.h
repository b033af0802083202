// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts as concepts, for code that knows both at compile time: a pair that does not fit is then
// a compile error, with the same rules that check_pair() states its reasons by.

#include <concepts>

#include "ops/fused_moe/fused_moe.h"

namespace afd::ops {

// A PrepareFinalize with its record.
template <typename Part>
concept PrepareFinalizePart = std::derived_from<Part, PrepareFinalize> && requires {
    { Part::kCapability } -> std::convertible_to<PrepareFinalizeCapability>;
};

// Experts with their record.
template <typename Part>
concept ExpertsPart = std::derived_from<Part, Experts> && requires {
    { Part::kCapability } -> std::convertible_to<ExpertsCapability>;
};

template <typename Dispatch, typename Part>
concept Composable = PrepareFinalizePart<Dispatch> && ExpertsPart<Part> &&
    fits(Dispatch::kCapability, Part::kCapability);

// FusedMoe::compose of parts that fit; what depends on the configuration is checked as there.
template <PrepareFinalizePart Dispatch, ExpertsPart Part>
requires Composable<Dispatch, Part> Result<FusedMoe> compose(Dispatch& prepare_finalize,
                                                             Part& experts,
                                                             const FusedMoeConfig& config,
                                                             Parallel& parallel,
                                                             Experts* shared = nullptr) {
    return FusedMoe::compose(prepare_finalize, experts, config, parallel, shared);
}

}  // namespace afd::ops
