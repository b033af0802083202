// SPDX-License-Identifier: Apache-2.0
#pragma once

// The lanes of each topology:
//
//   local_lanes.h    the experts are in this process (colocated)
//   window_lanes.h   they are in FFN workers: windows, and for long prompts two phases

#include <memory>

#include "daemon/lanes/expert_lanes.h"
#include "daemon/lanes/lane_sources.h"
#include "proto/status.h"

namespace afd::daemon {

// The lanes of the instance's topology. Errors: those of loading the experts that run here; of
// FusedMoe::compose(); of attaching the areas of two-phase rounds.
Result<std::unique_ptr<ExpertLanes>> make_expert_lanes(const LaneSources& sources);

}  // namespace afd::daemon
