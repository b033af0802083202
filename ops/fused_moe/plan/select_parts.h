// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts for a configuration, chosen by their records.

#include <span>

#include "ops/fused_moe/plan/registry.h"

namespace afd::ops {

struct SelectedParts {
    const PrepareFinalizeEntry* prepare_finalize = nullptr;
    const ExpertsEntry* experts = nullptr;
};

// The first pair that serves the configuration in this process: of the PrepareFinalize parts that
// can be made here in their order, each with the Experts parts in theirs, `reference` after all
// others. The lists may have a user's own parts, which stand before those that they are to win
// against. What is returned points into them.
// Errors: those of check(config); kFailedPrecondition: for each PrepareFinalize the first reason.
Result<SelectedParts> select_parts(
    const FusedMoeConfig& config,
    std::span<const PrepareFinalizeEntry> prepare_finalize = prepare_finalize_parts(),
    std::span<const ExpertsEntry> experts = experts_parts());

}  // namespace afd::ops
