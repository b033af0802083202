// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalWelcome: what a host that has joined makes of a leader's Welcome for a worker of its own:
// whatever depends on the host is put in its place, and the worker's segments follow from it.

#include <cstdint>
#include <string>

#include "daemon/config/config.h"
#include "daemon/config/cpu_plan.h"
#include "daemon/instance/instance_setup.h"
#include "daemon/instance/ucx_network.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/shared_memory/worker_segments.h"

namespace afd::daemon {

struct LocalWelcome {
    control::Role role = control::ROLE_UNSPECIFIED;
    uint32_t index = 0;
    WorkerCpus cpus;                 // Of this worker,
    bool is_oversubscribed = false;  // and of the host.

    // `network`: of this host where the leader sees it, which is another one when it has joined
    // again over another network. REQUIRES: `setup` has opened the model, and is of `config`.
    // Errors: kFailedPrecondition, kNotFound: what the leader wants and this host does not have.
    Result<> localise(const Config& config,
                      const InstanceSetup& setup,
                      const UcxNetwork& network,
                      control::Welcome& welcome) const;

    // As the worker will compute them (WorkerSetup::make), for a Welcome that was localised.
    // Errors: those of WorkerSegments::create(); kResourceExhausted also if this host has no room
    // for the worker's window; kFailedPrecondition, kDataLoss: the Welcome.
    Result<schedule::WorkerSegments> create_segments(const control::Welcome& welcome) const;
    // Those that are the host's: name and descriptor.
    schedule::WorkerSegments::Handles shared_segments(const InstanceSetup& setup,
                                                      const control::Welcome& welcome) const;
};

}  // namespace afd::daemon
