// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a worker attaches to the transport of its instance: the one place that names its classes.
// Errors of all: those of the transport's attach(): a segment that is missing or not of this
// instance, an index outside the geometry, a wrong number of doorbells.

#include <cstdint>
#include <memory>

#include "proto/status.h"
#include "schedule/shared_memory/attach_config.h"
#include "schedule/shared_memory/segment.h"
#include "schedule/transport/transport.h"

namespace afd::schedule {

Result<std::unique_ptr<DispatchTransport>> attach_dispatch(const AttachConfig& config,
                                                           uint32_t session);
Result<std::unique_ptr<ReturnTransport>> attach_returns(const AttachConfig& config, uint32_t rank);

// A colocated session, which has no peers.
Result<std::unique_ptr<Endpoint>> attach_colocated(const AttachConfig& config, uint32_t session);

// The worker's control segment, for a transport that shares nothing else with this machine.
Result<Segment> attach_own_control(const AttachConfig& config, Role role, uint32_t index);

// The worker's metrics. Whatever the transport, these are shared with afdd on its own machine.
Result<Segment> attach_metrics(const AttachConfig& config, Role role, uint32_t index);

}  // namespace afd::schedule
