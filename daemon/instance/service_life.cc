// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/service_life.h"

#include <fmt/core.h>
#include <unistd.h>

namespace afd::daemon {

ServiceLife::ServiceLife(EventLoop& loop, const ServiceNotifier& notifier, bool is_main)
    : notifier_(notifier),
      watchdog_timer_(loop, [this] { send("WATCHDOG=1"); }),
      is_main_(is_main) {}

void ServiceLife::begin() {
    // Half of the time that the manager allows: one message may be late.
    const uint64_t every_ms = notifier_.watchdog_us() / 2000;
    if (every_ms > 0) watchdog_timer_.start(0, every_ms);
}

void ServiceLife::send(const std::string& lines) const {
    if (is_main_) notifier_.send(lines);
}

void ServiceLife::say_ready(const std::string& status) {
    if (is_stopping_) return;
    is_ready_ = true;
    send("READY=1\nSTATUS=" + status);
}

void ServiceLife::say_status(const std::string& status) {
    send("STATUS=" + status);
}

void ServiceLife::begin_reload() {
    if (!is_serving()) return;
    send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", uv_hrtime() / 1000));
}

void ServiceLife::end_reload() {
    if (is_serving()) send("READY=1");
}

void ServiceLife::say_stopping(const std::string& status, uint64_t within_ms) {
    is_stopping_ = true;
    send(fmt::format("STOPPING=1\nSTATUS={}\nEXTEND_TIMEOUT_USEC={}", status, within_ms * 1000));
}

void ServiceLife::give_to(int pid) {
    send(fmt::format("MAINPID={0}\nSTATUS=pid {0} takes over", pid));
    is_main_ = false;
}

void ServiceLife::take_back() {
    is_main_ = true;
    send(fmt::format("MAINPID={}", ::getpid()));
}

}  // namespace afd::daemon
