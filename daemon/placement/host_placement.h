// SPDX-License-Identifier: Apache-2.0
#pragma once

// Placement over hosts: replicas of an expert on different ones, and sessions that use what their
// own host has.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/status.h"
#include "schedule/dispatch/expert_placement.h"

namespace afd::daemon {

// The ranks of each of `num_experts` experts, `num_replicas` for each: the first by round robin,
// the next on hosts that have none of it yet, as far as there are such. All ranks get about as
// many, and the experts of one rank have their others on different ranks, so that a lost one's work
// goes to many. `hosts`: of each rank. REQUIRES: 1 <= num_replicas <= hosts.size().
std::vector<std::vector<uint32_t>> spread_replicas(uint32_t num_experts,
                                                   uint32_t num_replicas,
                                                   std::span<const std::string> hosts);

// Lets each session use the replicas on its own host; of several of them, or if there is none, of
// all, the one with the number session % how many. Hosts of each session and of each rank.
Result<> choose_near_replicas(std::span<const std::string> session_hosts,
                              std::span<const std::string> rank_hosts,
                              schedule::ExpertPlacement& placement);

}  // namespace afd::daemon
