// SPDX-License-Identifier: Apache-2.0
#pragma once

// HangDetector: decides from a worker's heartbeat that it hangs. Pure: time is passed in.
//
// Silence alone proves nothing: an idle worker sleeps without a beat. It hangs if it makes no
// progress for the timeout while somebody needs it all that time. Time counts in which afdd looked:
// where both were stopped, nobody hangs (lived_time.h). The answer makes afdd kill; only the reaped
// process frees the slot (R8).

#include <cstdint>

#include "schedule/context/heartbeat.h"
#include "schedule/wait/lived_time.h"

namespace afd::daemon {

class HangDetector {
  public:
    // The longest time between two looks of the supervisor, and what one look can add.
    static constexpr uint64_t kPeriodMsMax = 2000;
    static constexpr uint64_t kLookMsMax = 2 * kPeriodMsMax;

    // `timeout_ms` 0: never.
    explicit HangDetector(uint64_t timeout_ms) : timeout_ms_(timeout_ms) {}

    // Looks at the worker at `now_ms` (steady). `is_needed`: it has work, by its own word or by
    // that of somebody who waits for it.
    // Returns whether it hangs.
    bool observe(const schedule::HeartbeatView& view, bool is_needed, uint64_t now_ms) {
        const uint64_t lived_ms = lived_.at(now_ms);
        silent_ms_ = observer_.observe(view, lived_ms * 1000) / 1000;
        if (!is_needed) needed_since_ms_ = lived_ms;
        needed_ms_ = lived_ms - needed_since_ms_;
        return timeout_ms_ != 0 && silent_ms_ >= timeout_ms_ && needed_ms_ >= timeout_ms_;
    }

    // As of the last look: time without progress.
    uint64_t silent_ms() const { return silent_ms_; }

    // A new process has the slot since `now_ms`.
    void restart(uint64_t now_ms) {
        observer_ = {};
        silent_ms_ = 0;
        needed_since_ms_ = lived_.at(now_ms);
    }

  private:
    const uint64_t timeout_ms_;
    schedule::LivedTime lived_{kLookMsMax};
    schedule::HeartbeatObserver observer_;
    uint64_t silent_ms_ = 0;
    uint64_t needed_since_ms_ = 0;
    uint64_t needed_ms_ = 0;
};

}  // namespace afd::daemon
