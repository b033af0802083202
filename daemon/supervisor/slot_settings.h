// SPDX-License-Identifier: Apache-2.0
#pragma once

// From the plan of a supervisor to how one of its slots starts, times out and welcomes
// its worker, on this host or, by a stand-in, on another.

#include <cstdint>

#include "daemon/supervisor/doorbells.h"
#include "daemon/supervisor/supervisor_plan.h"
#include "daemon/supervisor/worker_slot.h"
#include "proto/control.pb.h"

namespace afd::daemon {

// All but complete_welcome. REQUIRES: `plan` outlives the slot; its doorbells exist.
WorkerSlot::Settings slot_settings(const SupervisorPlan& plan,
                                   const Doorbells& doorbells,
                                   control::Role role,
                                   uint32_t index);

}  // namespace afd::daemon
