// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/lived_timer.h"

#include <algorithm>
#include <utility>

namespace afd::daemon {

LivedTimer::LivedTimer(EventLoop& loop, std::function<void()> callback)
    : loop_(loop), callback_(std::move(callback)), look_timer_(loop, [this] { look(); }) {}

void LivedTimer::start(uint64_t after_ms) {
    const uint64_t lived_ms = lived_.at(loop_.now_ms());
    due_ms_ = lived_ms + after_ms;
    look_later(lived_ms);
}

void LivedTimer::look() {
    const uint64_t lived_ms = lived_.at(loop_.now_ms());
    if (lived_ms < due_ms_) {
        look_later(lived_ms);
        return;
    }
    // A copy: the call may destroy this object.
    const std::function<void()> callback = callback_;
    callback();
}

void LivedTimer::look_later(uint64_t lived_ms) {
    look_timer_.start(std::min(due_ms_ - lived_ms, kLookMs));
}

}  // namespace afd::daemon
