// SPDX-License-Identifier: Apache-2.0
#pragma once

// EndSignals: what a SIGTERM or SIGINT means. The first one drains, also where a client has asked
// for that before; a later one stops at once. What comes within 100 ms of the first counts as the
// first: one Ctrl-C or one stop of a service often sends two, of either kind, and signals that wait
// together are delivered as one anyway. So who wants afdd to stop at once waits that long; no hand
// is faster.

#include <cstdint>
#include <optional>

namespace afd::daemon {

class EndSignals {
  public:
    static constexpr uint64_t kSameMs = 100;

    enum class Meaning { kDrain, kSame, kStopNow };

    Meaning on_signal(uint64_t now_ms) {
        if (!first_ms_) {
            first_ms_ = now_ms;
            return Meaning::kDrain;
        }
        return now_ms - *first_ms_ < kSameMs ? Meaning::kSame : Meaning::kStopNow;
    }

  private:
    std::optional<uint64_t> first_ms_;
};

}  // namespace afd::daemon
