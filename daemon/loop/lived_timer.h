// SPDX-License-Identifier: Apache-2.0
#pragma once

// LivedTimer: a Timer for how long another may keep this process waiting. Its time is what this
// process lived through (schedule/wait/lived_time.h): stopped together with whom it waits for, it
// has not waited, and its loop calls timers before it reads what has come. Of a Timer it has the
// rules (event_loop.h).

#include <cstdint>
#include <functional>

#include "daemon/loop/event_loop.h"
#include "schedule/wait/lived_time.h"

namespace afd::daemon {

class LivedTimer {
  public:
    // So often it looks, and so much is lived at most between two looks.
    static constexpr uint64_t kLookMs = 250;
    static constexpr uint64_t kLookMsMax = 1000;

    LivedTimer(EventLoop& loop, std::function<void()> callback);

    // Fires once, when `after_ms` were lived through. Replaces an earlier start.
    void start(uint64_t after_ms);
    void stop() { look_timer_.stop(); }

  private:
    void look();
    void look_later(uint64_t lived_ms);

    EventLoop& loop_;
    const std::function<void()> callback_;
    schedule::LivedTime lived_{kLookMsMax};
    uint64_t due_ms_ = 0;  // As lived_ counts.
    Timer look_timer_;
};

}  // namespace afd::daemon
