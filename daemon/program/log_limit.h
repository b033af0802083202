// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogLimit: at most one line in a while of a kind that others can cause as often as they like.
// Pure: time is passed in.

#include <cstdint>
#include <optional>
#include <string>

namespace afd::daemon {

class LogLimit {
  public:
    static constexpr uint64_t kPeriodMs = 1000;

    explicit LogLimit(uint64_t period_ms = kPeriodMs) : period_ms_(period_ms) {}

    // Before a line, at `now_ms` (steady). Nothing: it is to be left out; else how many were since
    // the last one that was said.
    std::optional<uint64_t> take(uint64_t now_ms) {
        if (has_said_ && now_ms - said_ms_ < period_ms_) {
            ++num_unsaid_;
            return std::nullopt;
        }
        has_said_ = true;
        said_ms_ = now_ms;
        const uint64_t num_unsaid = num_unsaid_;
        num_unsaid_ = 0;
        return num_unsaid;
    }

    // What to append to the line.
    static std::string more(uint64_t num_unsaid) {
        return num_unsaid == 0 ? "" : " (and " + std::to_string(num_unsaid) + " more)";
    }

  private:
    uint64_t period_ms_;
    bool has_said_ = false;
    uint64_t said_ms_ = 0;
    uint64_t num_unsaid_ = 0;
};

}  // namespace afd::daemon
