// SPDX-License-Identifier: Apache-2.0
#include "schedule/wait/adaptive_wait.h"

#include <chrono>

namespace afd::schedule {

uint64_t steady_now_us() {
    return steady_now_ns() / 1000;
}

uint64_t steady_now_ns() {
    // Steady and never the wall clock: a deadline must not move when somebody sets the time. On
    // Linux the zero of this clock is one for all processes of a machine.
    const auto since_epoch = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count());
}

}  // namespace afd::schedule
