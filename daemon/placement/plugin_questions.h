// SPDX-License-Identifier: Apache-2.0
#pragma once

// What afdd asks the libraries of schedule/plugin/plugin_api.h that its configuration names, each
// in a process of its own (plugin_process.h). Answers are what a library said: whether they make a
// placement is for ExpertPlacement to judge.
//
// Errors of all: those of PluginLibrary and of ask_in_process(), with the library's path.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/status.h"
#include "schedule/dispatch/expert_placement.h"

namespace afd::daemon {

using ExpertRanks = std::vector<std::vector<std::vector<uint32_t>>>;  // [layer][expert]

// The ranks of every expert. Errors: kInvalidArgument: more ranks for an expert than there are.
Result<ExpertRanks> ask_placement(const std::string& path,
                                  std::span<const schedule::LayerExperts> layers,
                                  uint32_t num_ranks);

// As ExpertPlacement::set_choices() takes them: of every expert that has a choice.
Result<std::vector<uint16_t>> ask_replica_choices(const std::string& path,
                                                  uint32_t num_sessions,
                                                  const schedule::ExpertPlacement& placement);

// The name of the library, which has a scheduler.
Result<std::string> ask_scheduler_name(const std::string& path);

}  // namespace afd::daemon
