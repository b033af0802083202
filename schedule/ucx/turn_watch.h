// SPDX-License-Identifier: Apache-2.0
#pragma once

// TurnWatch: whether a thread that comes round again and again still does, judged by another that
// looks now and then. A process that was stopped is not stuck (lived_time.h).

#include <cstdint>
#include <utility>

#include "schedule/wait/lived_time.h"

namespace afd::schedule {

class TurnWatch {
  public:
    // What one look can add.
    static constexpr uint64_t kLookUsMax = 1'000'000;

    explicit TurnWatch(uint64_t limit_us) : limit_us_(limit_us) {}

    // A look: `num_turns` that the thread has made so far. Whether that has stood still for longer
    // than the limit.
    bool is_stuck(uint64_t num_turns, uint64_t now_us) {
        const uint64_t lived_us = lived_.at(now_us);
        if (std::exchange(num_turns_, num_turns) != num_turns) turned_us_ = lived_us;
        return lived_us - turned_us_ > limit_us_;
    }

  private:
    uint64_t limit_us_;
    uint64_t num_turns_ = 0;
    LivedTime lived_{kLookUsMax};
    uint64_t turned_us_ = 0;
};

}  // namespace afd::schedule
