// SPDX-License-Identifier: Apache-2.0
#pragma once

// SessionAttachment: what a session attaches to before anything else, so that its heart beats while
// it loads: its own end, and with FFN workers the way to them.

#include <memory>

#include "daemon/worker/worker_setup.h"
#include "schedule/transport/transport.h"

namespace afd::daemon {

struct SessionAttachment {
    std::unique_ptr<schedule::Endpoint> colocated;           // Null: with FFN workers.
    std::unique_ptr<schedule::DispatchTransport> transport;  // Null: colocated.

    // Both outlive what is made. Errors: those of worker_transport.h.
    static Result<SessionAttachment> make(const WorkerSetup& setup,
                                          WorkerControl& control,
                                          uint32_t session);

    schedule::Endpoint& own() const { return colocated ? *colocated : *transport; }
};

}  // namespace afd::daemon
