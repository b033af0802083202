// SPDX-License-Identifier: Apache-2.0
#pragma once

// ServiceState: whether the instance can serve, by workers that have served and cannot start again:
// their model or segments are gone, a header is bad, the machine has no descriptors. They are tried
// again with back-off, or by who starts them by hand, so every state can pass.

#include <memory>
#include <span>
#include <string>

#include "daemon/supervisor/worker_slot.h"

namespace afd::daemon {

struct ServiceState {
    enum class Level {
        kReady,
        kDegraded,  // Some attention workers cannot start; others serve.
        kFailed,    // No attention worker can, or experts are missing: nobody can be served.
    };
    Level level = Level::kReady;
    std::string reason;  // Of the other two: each worker that cannot start, and why.

    friend bool operator==(const ServiceState&, const ServiceState&) = default;
};

// A worker that was halted on purpose cannot serve, and is no failure.
ServiceState service_state(std::span<const std::unique_ptr<WorkerSlot>> attention,
                           std::span<const std::unique_ptr<WorkerSlot>> ffn);

}  // namespace afd::daemon
