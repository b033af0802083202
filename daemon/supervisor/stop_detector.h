// SPDX-License-Identifier: Apache-2.0
#pragma once

// StopDetector: decides that a worker has been stopped by a signal for too long. Pure: time is
// passed in.
//
// The kernel's word about the process, unlike the silence of a heartbeat, cannot be mistaken for a
// long computation, so the time may be short (hang_detector.h has the other). A worker that nobody
// needs may stay stopped. Time counts in which afdd looked: of one that was stopped together with
// it, the word may be one of before (lived_time.h). The answer makes afdd kill; only the reaped
// process frees the slot (R8).

#include <algorithm>
#include <cstdint>

#include "schedule/wait/lived_time.h"

namespace afd::daemon {

class StopDetector {
  public:
    // `timeout_ms` 0: never.
    explicit StopDetector(uint64_t timeout_ms)
        : timeout_ms_(timeout_ms), lived_(std::max(timeout_ms / 2, kLookMs)) {}

    bool is_on() const { return timeout_ms_ != 0; }

    // Looks at the worker at `now_ms` (steady). `holds_up`: it is stopped, and somebody needs it.
    // Returns whether it has been so, at every look, for the timeout.
    bool observe(bool holds_up, uint64_t now_ms) {
        const uint64_t lived_ms = lived_.at(now_ms);
        if (!holds_up) {
            is_seen_ = false;
            return false;
        }
        if (!is_seen_) since_ms_ = lived_ms;
        is_seen_ = true;
        return is_on() && lived_ms - since_ms_ >= timeout_ms_;
    }

  private:
    // The supervisor looks four times in the timeout, but not more often than this.
    static constexpr uint64_t kLookMs = 250;

    const uint64_t timeout_ms_;
    schedule::LivedTime lived_;
    bool is_seen_ = false;
    uint64_t since_ms_ = 0;
};

}  // namespace afd::daemon
