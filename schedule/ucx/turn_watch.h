// SPDX-License-Identifier: Apache-2.0
#pragma once

// TurnWatch: whether a thread that comes round again and again still does, judged by another that
// looks now and then.
//
// Time counts in which the looker looked: a process that was stopped is not stuck.

#include <algorithm>
#include <cstdint>
#include <utility>

namespace afd::schedule {

class TurnWatch {
  public:
    // What one look can add: more passed than the looker lived through.
    static constexpr uint64_t kLookUsMax = 1'000'000;

    explicit TurnWatch(uint64_t limit_us) : limit_us_(limit_us) {}

    // A look: `num_turns` that the thread has made so far. Whether that has stood still for longer
    // than the limit.
    bool is_stuck(uint64_t num_turns, uint64_t now_us) {
        still_us_ += std::min(now_us - std::exchange(looked_us_, now_us), kLookUsMax);
        if (std::exchange(num_turns_, num_turns) != num_turns) still_us_ = 0;
        return still_us_ > limit_us_;
    }

  private:
    uint64_t limit_us_;
    uint64_t num_turns_ = 0;
    uint64_t looked_us_ = 0;
    uint64_t still_us_ = 0;
};

}  // namespace afd::schedule
