// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalWelcome: what a host that has joined makes of a leader's Welcome for a worker of its own:
// whatever depends on the host is put in its place, and the worker's segments follow from it.

#include <cstddef>
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

    // `network`: of this host where the leader sees it, and `cpus`: of this host, which are others
    // when it has joined again over another network or with other numbers of workers. `cpu_index`:
    // which of those of the role this worker has. REQUIRES: `setup` has opened the model, and is of
    // `config`; `cpus` has these.
    // Errors: kFailedPrecondition, kNotFound: what the leader wants and this host does not have.
    Result<> localise(const Config& config,
                      const InstanceSetup& setup,
                      const UcxNetwork& network,
                      const CpuPlan& cpus,
                      size_t cpu_index,
                      control::Welcome& welcome) const;

    // As the worker will compute them (WelcomedModel), for a Welcome that was localised.
    // Errors: those of WorkerSegments::create(); kResourceExhausted also if this host has no room
    // for the worker's window; kFailedPrecondition, kDataLoss: the Welcome.
    Result<schedule::WorkerSegments> create_segments(const control::Welcome& welcome) const;
    // Those that are the host's: name and descriptor.
    schedule::WorkerSegments::Handles shared_segments(const InstanceSetup& setup,
                                                      const control::Welcome& welcome) const;
};

}  // namespace afd::daemon
