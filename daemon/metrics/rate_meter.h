// SPDX-License-Identifier: Apache-2.0
#pragma once

// RateMeter: how many things happen per second, over the last five whole seconds. Needs no timer:
// time is passed in, and old seconds are forgotten when somebody looks.

#include <algorithm>
#include <array>
#include <cstdint>

namespace afd::daemon {

class RateMeter {
  public:
    void add(uint64_t count, uint64_t now_ms) {
        advance(now_ms);
        buckets_[(now_ms / 1000) % buckets_.size()] += count;
    }

    // The mean rate over the seconds before the running one.
    double per_second(uint64_t now_ms) {
        advance(now_ms);
        uint64_t sum = 0;
        for (uint64_t count : buckets_) sum += count;
        sum -= buckets_[(now_ms / 1000) % buckets_.size()];
        return static_cast<double>(sum) / static_cast<double>(buckets_.size() - 1);
    }

  private:
    void advance(uint64_t now_ms) {
        const uint64_t second = now_ms / 1000;
        const uint64_t passed = std::min<uint64_t>(second - second_, buckets_.size());
        for (uint64_t i = 0; i < passed; ++i) buckets_[(second - i) % buckets_.size()] = 0;
        second_ = second;
    }

    std::array<uint64_t, 6> buckets_{};
    uint64_t second_ = 0;
};

}  // namespace afd::daemon
