// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a worker gets to its peers: over memory that it shares with them, or over messages of UCX
// where the Welcome says so. This is chosen here; loops and lanes do not ask.
//
// Over UCX the control segment is all that a worker shares with its machine: afdd reads there what
// it counts and whether it lives.

#include <cstdint>
#include <memory>

#include "daemon/control/worker_control.h"
#include "daemon/worker/worker_setup.h"
#include "proto/status.h"
#include "schedule/transport/transport.h"

namespace afd::daemon {

// Both outlive the transport. Errors: those of schedule/shared_memory/attach.h; kUnavailable and
// kInvalidArgument: UCX refuses transports, devices or address; kResourceExhausted: no room for the
// window; kUnimplemented: built without UCX.
Result<std::unique_ptr<schedule::DispatchTransport>> attach_dispatch(const WorkerSetup& setup,
                                                                     WorkerControl& control,
                                                                     uint32_t session);
// Over UCX it also tells afdd where it listens.
Result<std::unique_ptr<schedule::ReturnTransport>> attach_returns(const WorkerSetup& setup,
                                                                  WorkerControl& control,
                                                                  uint32_t rank);

// Both over UCX. Null: a program without it.
struct UcxEnds {
    Result<std::unique_ptr<schedule::DispatchTransport>> (*dispatch)(const WorkerSetup&,
                                                                     WorkerControl&,
                                                                     uint32_t session) = nullptr;
    Result<std::unique_ptr<schedule::ReturnTransport>> (*returns)(const WorkerSetup&,
                                                                  WorkerControl&,
                                                                  uint32_t rank) = nullptr;
};
// Before the first of them; ucx_transport.h calls it.
void set_ucx_ends(const UcxEnds& ends);

}  // namespace afd::daemon
