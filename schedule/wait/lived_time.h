// SPDX-License-Identifier: Apache-2.0
#pragma once

// LivedTime: the clock of somebody who looks again and again whether another keeps it waiting. Time
// counts in which the looker looked: what was stopped meanwhile, alone or with everything that it
// waits for, has not waited. Pure: time is passed in, in any unit.

#include <algorithm>
#include <cstdint>
#include <utility>

namespace afd::schedule {

class LivedTime {
  public:
    // `look_max`: what one look can add. More has passed than the looker lived through.
    explicit LivedTime(uint64_t look_max) : look_max_(look_max) {}

    // A look at `now`, which never goes back: the time lived so far.
    uint64_t at(uint64_t now) {
        lived_ += std::min(now - std::exchange(looked_, now), look_max_);
        return lived_;
    }

  private:
    uint64_t look_max_;
    uint64_t looked_ = 0;
    uint64_t lived_ = 0;
};

}  // namespace afd::schedule
