// SPDX-License-Identifier: Apache-2.0
#pragma once

// ServiceLife: what the service manager hears of this afdd (sd_notify(3)), and when.
//
//   starting -> ready -> stopping
//
// Only the main process of the service speaks. While an upgrade runs there are two afdds: the
// manager would believe both of them, and what the other one means for itself, that it ends for
// example, it would take for the whole service. give_to(), take_over() and take_back() say which
// one it is. All on afdd's loop.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/loop/event_loop.h"
#include "daemon/program/service_notifier.h"

namespace afd::daemon {

class ServiceLife {
  public:
    // `is_main`: false for one that is to take the place of another.
    // REQUIRES: `loop` and `notifier` outlive the object.
    ServiceLife(EventLoop& loop, const ServiceNotifier& notifier, bool is_main);

    // What an afdd in the place of this one needs in its environment to speak, too.
    std::vector<std::string> environment() const { return notifier_.environment(); }

    // From now on the manager hears that the loop turns, if it wants to.
    void begin();

    // It serves, or serves again. `status` here and below: one line.
    void say_ready(const std::string& status);
    void say_status(const std::string& status);
    // Around the work of a SIGHUP. One that comes before the service is ready, or when it stops, is
    // no business of the manager's: the end of a reload is READY=1.
    void begin_reload();
    void end_reload();
    // It ends, within `within_ms`. For good.
    void say_stopping(const std::string& status, uint64_t within_ms);

    // Process `pid` is the main process from now on, which has still to say that it is ready.
    void give_to(int pid);
    // That one is gone, and this one is the main process again.
    void take_back();
    // The main process before this one has given it the part, or is gone.
    void take_over() { is_main_ = true; }

  private:
    void send(const std::string& lines) const;
    bool is_serving() const { return is_ready_ && !is_stopping_; }

    const ServiceNotifier& notifier_;
    Timer watchdog_timer_;
    bool is_main_;
    bool is_ready_ = false;
    bool is_stopping_ = false;
};

}  // namespace afd::daemon
