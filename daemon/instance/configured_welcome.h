// SPDX-License-Identifier: Apache-2.0
#pragma once

// What workers are told (the Welcome, proto/control.proto) as far as it follows from the
// configuration and the cores alone. What the model, the network and the segments add is
// InstanceLayout's.

#include "daemon/config/config.h"
#include "daemon/config/cpu_plan.h"
#include "proto/control.pb.h"
#include "schedule/layout/row_dtype.h"

namespace afd::daemon {

// The dimensions of the instance; instance_geometry.h makes the segments' from them.
control::Geometry instance_geometry(const Config& config,
                                    const CpuPlan& cpus,
                                    schedule::RowDtype dispatch_dtype);

// Sizes, times and policies; neither geometry nor model nor names of segments.
control::Welcome configured_welcome(const Config& config, const CpuPlan& cpus);

}  // namespace afd::daemon
