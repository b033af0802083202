// SPDX-License-Identifier: Apache-2.0
#pragma once

// LaneSources: what lanes are made from.

#include "daemon/lanes/session_attachment.h"
#include "daemon/worker/worker_setup.h"
#include "ops/tensor/parallel.h"
#include "proto/control.pb.h"

namespace afd::daemon {

// All outlive the lanes.
struct LaneSources {
    const WorkerSetup& setup;
    const control::Welcome& welcome;
    const SessionAttachment& attachment;
    ops::Parallel& parallel;
};

}  // namespace afd::daemon
