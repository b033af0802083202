// SPDX-License-Identifier: Apache-2.0
#pragma once

// What of a configuration is about experts, for a model: where they are placed, and by whom passes
// are scheduled. Used when an instance is made, and by those who only say whether it could be.

#include <string>

#include "daemon/config/config.h"
#include "model/checkpoint/config.h"
#include "proto/status.h"
#include "schedule/dispatch/expert_placement.h"

namespace afd::daemon {

// Whether workers compute the placement themselves. Anything else is resolved once, by afdd, which
// tells them (placement_table.h): all of them must have the same table.
bool is_default_placement(const Config& config);

// REQUIRES: the configuration has FFN workers. Errors: those of plan_placement(), and of
// check_table_bytes().
Result<schedule::ExpertPlacement> plan_experts(const Config& config,
                                               const model::ModelConfig& model);

// The name of the library of ffn_scheduler; empty: there is none. FFN workers load it themselves:
// what is wrong with it is found here, once and before they start. Errors: those of
// ask_scheduler_name().
Result<std::string> check_scheduler(const Config& config);

}  // namespace afd::daemon
