// SPDX-License-Identifier: Apache-2.0
#pragma once

// Turns an EventLoop until something has happened. The deadline is a watchdog for a test that
// would hang, not a claim about speed.

#include <functional>

#include "daemon/loop/event_loop.h"

namespace afd::daemon {

inline bool run_until(EventLoop& loop, const std::function<bool()>& happened) {
    constexpr uint64_t kWatchdogNs = 30'000'000'000;
    constexpr uint64_t kTurnMs = 2;
    const uint64_t start = uv_hrtime();
    // Keeps uv_run(ONCE) from sleeping longer than a turn.
    Timer turn(loop, [] {});
    turn.start(kTurnMs, kTurnMs);
    while (!happened()) {
        if (uv_hrtime() - start > kWatchdogNs) return false;
        uv_run(loop.uv(), UV_RUN_ONCE);
    }
    return true;
}

}  // namespace afd::daemon
