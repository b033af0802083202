// SPDX-License-Identifier: Apache-2.0
#pragma once

// OomWatch: tells of a process that a SIGKILL has ended whether the kernel sent it because the
// memory of the control group ran out. It goes by the group's count of such ends: each can be the
// reason of one, of a process that was there by then.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "schedule/shared_memory/control_group.h"

namespace afd::schedule {

class OomWatch {
  public:
    explicit OomWatch(std::string root = kControlGroupRoot,
                      ControlGroups groups = own_control_groups())
        : root_(std::move(root)), groups_(std::move(groups)) {}

    // Such ends so far: to be asked when a process starts.
    uint64_t count() const { return control_group_oom_kills(root_, groups_).value_or(0); }

    // A process of the group was killed so since the count was `count_at_start`, and no call has
    // said yes for that before.
    bool take(uint64_t count_at_start) {
        const uint64_t num_others = std::max(num_taken_, count_at_start);
        if (count() <= num_others) return false;
        num_taken_ = num_others + 1;
        return true;
    }

  private:
    const std::string root_;
    const ControlGroups groups_;
    uint64_t num_taken_ = 0;  // Those up to this one have been the reason of an end, or of none.
};

}  // namespace afd::schedule
