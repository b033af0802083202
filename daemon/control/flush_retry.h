// SPDX-License-Identifier: Apache-2.0
#pragma once

// FlushRetry: when the owner of a ControlChannel on an event loop flushes it again: as soon as the
// socket is writable, or, where the kernel was short of something, a little later.

#include <functional>
#include <utility>

#include "daemon/control/control_channel.h"
#include "daemon/loop/event_loop.h"

namespace afd::daemon {

class FlushRetry {
  public:
    // `flush`: of the owner, which looks at after() again. REQUIRES: `loop` outlives the object.
    FlushRetry(EventLoop& loop, std::function<void()> flush) : timer_(loop, std::move(flush)) {}

    // Behind a flush() that did not fail. Returns what to watch the socket for: UV_WRITABLE or 0.
    int after(const ControlChannel& channel) {
        if (!channel.wants_write()) return 0;
        if (!channel.is_short()) return UV_WRITABLE;
        // Asked again meanwhile, it comes no later.
        if (!timer_.is_active()) timer_.start(ControlChannel::kRetryMs);
        return 0;
    }

  private:
    Timer timer_;
};

}  // namespace afd::daemon
