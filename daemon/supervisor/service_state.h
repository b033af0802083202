// SPDX-License-Identifier: Apache-2.0
#pragma once

// ServiceState: whether the instance can serve, by workers that have served and cannot start again:
// their model or segments are gone, a header is bad, the machine has no descriptors. They are tried
// again with back-off, or by whoever starts them by hand, so every state can pass. And by those
// that were halted on purpose, if the others cannot serve without them.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/supervisor/worker_slot.h"

namespace afd::daemon {

struct ServiceState {
    enum class Level {
        kReady,
        kDegraded,  // Some workers cannot start; the others serve without them.
        kHalted,    // Nobody is served, and requests wait, until a halted worker is to run again.
        kFailed,    // Each attention worker cannot start, or its experts cannot: nobody is served.
    };
    Level level = Level::kReady;
    // At every level but kReady: each worker that cannot start, and why; at kHalted also each
    // worker that is halted.
    std::string reason;

    friend bool operator==(const ServiceState&, const ServiceState&) = default;
};

// Whether the instance can do without the ranks that are lost [num_ffn_workers]: each expert has a
// replica elsewhere, and sessions choose. Empty: it cannot.
using CanDoWithout = std::function<bool(const std::vector<bool>& is_lost)>;

using WorkerSlots = std::span<const std::unique_ptr<WorkerSlot>>;

// Whether no rank, or none but those that it can do without, is known to be unable to start.
bool reaches_experts(WorkerSlots ffn, const CanDoWithout& can_do_without);

// A worker that was halted on purpose cannot serve, and is no failure: it is named only where
// nobody is served without it.
ServiceState service_state(WorkerSlots attention,
                           WorkerSlots ffn,
                           const CanDoWithout& can_do_without);

}  // namespace afd::daemon
