// SPDX-License-Identifier: Apache-2.0
#pragma once

// SessionAttachment: what a session maps before anything else, so that its heart beats while it
// loads: its own control segment, and with FFN workers the way to them.

#include <memory>

#include "daemon/worker/worker_setup.h"
#include "schedule/control_view.h"
#include "schedule/segment.h"
#include "schedule/shm_transport.h"

namespace afd::daemon {

struct SessionAttachment {
    schedule::Segment control;  // Colocated only; else the transport maps it.
    std::unique_ptr<schedule::ShmDispatchTransport> transport;  // Null: colocated.
    schedule::ControlView view;

    // Errors: those of ShmDispatchTransport::attach().
    static Result<SessionAttachment> make(const WorkerSetup& setup, uint32_t session);

    // Rings every FFN worker, so that none sleeps through this session's start.
    void ring_peers() const {
        if (transport != nullptr) transport->ring_peers();
    }
};

}  // namespace afd::daemon
