// SPDX-License-Identifier: Apache-2.0
#pragma once

// Turns an EventLoop until something has happened. The deadline is a watchdog for a test that
// would hang, not a claim about speed.

#include <functional>

#include "daemon/loop/event_loop.h"

namespace afd::daemon {

// Turns the loop for `duration_ms`; returns whether it happened, and ends with it.
inline bool run_for(EventLoop& loop, uint64_t duration_ms, const std::function<bool()>& happened) {
    constexpr uint64_t kTurnMs = 2;
    const uint64_t start = uv_hrtime();
    // Keeps uv_run(ONCE) from sleeping longer than a turn.
    Timer turn(loop, [] {});
    turn.start(kTurnMs, kTurnMs);
    while (!happened()) {
        if (uv_hrtime() - start > duration_ms * 1'000'000) return false;
        uv_run(loop.uv(), UV_RUN_ONCE);
    }
    return true;
}

inline bool run_until(EventLoop& loop, const std::function<bool()>& happened) {
    constexpr uint64_t kWatchdogMs = 30'000;
    return run_for(loop, kWatchdogMs, happened);
}

}  // namespace afd::daemon
