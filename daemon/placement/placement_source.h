// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the placement of experts comes from: a built-in rule, a file, or a library. How afdd tells
// its workers is in placement_table.h.
//
// A file names the ranks of every routed expert of an MoE layer, and exceptions by layer:
//
//   {"experts": [[0], [1], [0, 1], ...], "layers": {"3": [[1], [1], [0], ...]}}
//
// Shared experts and dense layers are on every rank.

#include <cstdint>
#include <span>
#include <string_view>

#include "daemon/config/config.h"
#include "proto/status.h"
#include "schedule/dispatch/expert_placement.h"

namespace afd::daemon {

// N of "replicas:N": each routed expert on N ranks, on different hosts where there are enough. 0:
// it is something else.
uint32_t replicas_of(std::string_view expert_placement);

// The placement of the configuration. REQUIRES: at least one rank.
// Cost: a file is read; a library is asked in a process of its own, which may take as long as
// kPluginAnswerMs for the placement and again for the choice.
// Errors: those of ExpertPlacement::from_ranks and of plugin_questions.h; kNotFound: no such file;
// kInvalidArgument: not such a file, or not for this model, with the file, layer and expert; more
// ranks than round_robin has experts for; more replicas than ranks.
Result<schedule::ExpertPlacement> plan_placement(const Config& config,
                                                 std::span<const schedule::LayerExperts> layers);

}  // namespace afd::daemon
