// SPDX-License-Identifier: Apache-2.0
#pragma once

// BackOff: how long to wait before a dead worker is started again. Pure: time is passed in.

#include <algorithm>
#include <cstdint>

namespace afd::daemon {

class BackOff {
  public:
    // The first delay, doubling at every failure up to `max_ms`; after `reset_ms` of good health
    // it starts anew.
    BackOff(uint64_t first_ms, uint64_t max_ms, uint64_t reset_ms)
        : first_ms_(first_ms), max_ms_(max_ms), reset_ms_(reset_ms) {}

    // The worker serves since `now_ms`.
    void healthy(uint64_t now_ms) {
        healthy_ = true;
        healthy_since_ms_ = now_ms;
    }

    // The worker died at `now_ms`. Returns the delay before the next start.
    uint64_t failed(uint64_t now_ms) {
        if (healthy_ && now_ms - healthy_since_ms_ >= reset_ms_) delay_ms_ = 0;
        healthy_ = false;
        delay_ms_ = delay_ms_ == 0 ? first_ms_ : std::min(max_ms_, 2 * delay_ms_);
        return delay_ms_;
    }

    // Failures so far do not count.
    void forget() { delay_ms_ = 0; }

  private:
    const uint64_t first_ms_;
    const uint64_t max_ms_;
    const uint64_t reset_ms_;
    uint64_t delay_ms_ = 0;
    bool healthy_ = false;
    uint64_t healthy_since_ms_ = 0;
};

}  // namespace afd::daemon
