// SPDX-License-Identifier: Apache-2.0
#pragma once

// How afdd tells its workers which ranks hold which experts, so that all of them have the same
// placement.

#include <span>

#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/dispatch/expert_placement.h"

namespace afd::daemon {

control::ExpertTable to_wire(const schedule::ExpertPlacement& placement);

// What to_wire() made, or round robin if `welcome` has no table.
// Errors: kDataLoss: a table that is not for these layers.
Result<schedule::ExpertPlacement> placement_of(const control::Welcome& welcome,
                                               std::span<const schedule::LayerExperts> layers,
                                               uint32_t num_ranks);

}  // namespace afd::daemon
