// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the placement of experts comes from: the built-in rule, a file, or a library; and how afdd
// tells its workers, so that all of them have the same one.
//
// A file names the ranks of every routed expert of an MoE layer, and exceptions by layer:
//
//   {"experts": [[0], [1], [0, 1], ...], "layers": {"3": [[1], [1], [0], ...]}}
//
// Shared experts and dense layers are on every rank.

#include <span>

#include "daemon/config/config.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/dispatch/expert_placement.h"

namespace afd::daemon {

// The placement of the configuration. REQUIRES: at least one rank.
// Errors: those of ExpertPlacement::from_ranks and of PluginLibrary; kNotFound: no such file;
// kInvalidArgument: not such a file, or not for this model, with the file, layer and expert; more
// ranks than round_robin has experts for.
Result<schedule::ExpertPlacement> plan_placement(const Config& config,
                                                 std::span<const schedule::LayerExperts> layers);

control::ExpertTable to_wire(const schedule::ExpertPlacement& placement);

// What to_wire() made, or the built-in rule if `welcome` has no table.
// Errors: kDataLoss: a table that is not for these layers.
Result<schedule::ExpertPlacement> placement_of(const control::Welcome& welcome,
                                               std::span<const schedule::LayerExperts> layers,
                                               uint32_t num_ranks);

}  // namespace afd::daemon
