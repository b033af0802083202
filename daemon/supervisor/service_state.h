// SPDX-License-Identifier: Apache-2.0
#pragma once

// ServiceState: whether the instance can serve, by workers that have served and cannot start again:
// their model or segments are gone, a header is bad, the machine has no descriptors. They are tried
// again with back-off, or by who starts them by hand, so every state can pass.

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "daemon/supervisor/worker_slot.h"

namespace afd::daemon {

struct ServiceState {
    enum class Level {
        kReady,
        kDegraded,  // Some workers cannot start; attention workers that need none of them serve.
        kFailed,    // Each attention worker cannot start, or its experts cannot: nobody is served.
    };
    Level level = Level::kReady;
    std::string reason;  // Of the other two: each worker that cannot start, and why.

    friend bool operator==(const ServiceState&, const ServiceState&) = default;
};

// The FFN ranks that the experts of each session are on: [session]. Without replicas, all of them.
// Empty: all, for every session.
using SessionRanks = std::vector<std::set<uint32_t>>;

using WorkerSlots = std::span<const std::unique_ptr<WorkerSlot>>;

// Whether no rank of the session is known to be unable to start.
bool reaches_experts(uint32_t session, WorkerSlots ffn, const SessionRanks& ranks);

// A worker that was halted on purpose cannot serve, and is no failure.
ServiceState service_state(WorkerSlots attention, WorkerSlots ffn, const SessionRanks& ranks);

}  // namespace afd::daemon
