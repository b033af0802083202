// SPDX-License-Identifier: Apache-2.0
#pragma once

// How afdd tells its workers which ranks hold which experts, so that all of them have the same
// placement. Each worker is told the choices that it follows, and no others: those of a large
// instance are tens of megabytes.

#include <cstdint>
#include <span>

#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/layout/router_placement.h"

namespace afd::daemon {

// What that worker is told.
control::ExpertTable to_wire(const schedule::ExpertPlacement& placement,
                             schedule::RouterPlacement router,
                             control::Role role,
                             uint32_t index);

// Whether every worker can be told.
// Errors: kInvalidArgument: the table of one does not fit into a message; says what to change.
Result<> check_table_bytes(const schedule::ExpertPlacement& placement,
                           schedule::RouterPlacement router);

// Those whose choices a worker follows: an attention worker its own, an FFN worker all.
struct SessionRange {
    uint32_t first = 0;
    uint32_t count = 0;
};

// What to_wire() made, or round robin if `welcome` has no table.
// Errors: kDataLoss: a table that is not for these layers, or has choices and not those of all of
// `sessions`.
Result<schedule::ExpertPlacement> placement_of(const control::Welcome& welcome,
                                               std::span<const schedule::LayerExperts> layers,
                                               uint32_t num_ranks,
                                               SessionRange sessions);

}  // namespace afd::daemon
