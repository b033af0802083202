// SPDX-License-Identifier: Apache-2.0
#pragma once

// The lanes of a worker, as its segments have them: which rounds are open, and where. Beside
// WorkerView, which shows the ScheduleContext.

#include "daemon/instance/instance_layout.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// Errors: kUnimplemented: windows are not shared, so that afdd does not see them.
Result<> check_lanes(const InstanceLayout& layout);

// Adds the lanes of the worker that is asked for. REQUIRES: check_lanes(); there is such a worker.
void list_lanes(const InstanceLayout& layout,
                const client::GetContext& asked,
                client::Context& answer);

}  // namespace afd::daemon
