// SPDX-License-Identifier: Apache-2.0
#pragma once

// OomWatch: tells of a process that a SIGKILL has ended whether the kernel sent it because the
// memory of the control group ran out. It goes by the group's count of such ends: each can be the
// reason of one.

#include <cstdint>
#include <string>
#include <utility>

#include "schedule/shared_memory/control_group.h"

namespace afd::schedule {

class OomWatch {
  public:
    explicit OomWatch(std::string root = kControlGroupRoot,
                      ControlGroups groups = own_control_groups())
        : root_(std::move(root)), groups_(std::move(groups)), num_taken_(count()) {}

    // Another process of the group was killed so since the last call that said yes.
    bool take() {
        if (count() <= num_taken_) return false;
        ++num_taken_;
        return true;
    }

  private:
    uint64_t count() const { return control_group_oom_kills(root_, groups_).value_or(0); }

    const std::string root_;
    const ControlGroups groups_;
    uint64_t num_taken_;
};

}  // namespace afd::schedule
