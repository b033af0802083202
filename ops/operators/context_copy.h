// SPDX-License-Identifier: Apache-2.0
#pragma once

// ContextCopy: what a call of an operator goes by. Other processes may write a context at any time,
// so an operator copies it once, judges the copy and uses the copy; what it writes goes to the
// shared one.

#include <optional>

#include "schedule/context/schedule_context.h"

namespace afd::ops {

// Every word loaded once.
schedule::ScheduleContext private_copy(const schedule::ScheduleContext& shared);

class ContextCopy {
  public:
    explicit ContextCopy(const schedule::ScheduleContext* shared) {
        if (shared != nullptr) copy_ = private_copy(*shared);
    }

    // Null if there was none.
    schedule::ScheduleContext* get() { return copy_ ? &*copy_ : nullptr; }

  private:
    std::optional<schedule::ScheduleContext> copy_;
};

}  // namespace afd::ops
