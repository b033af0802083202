// SPDX-License-Identifier: Apache-2.0
#pragma once

// Waits for what another thread of the test does.

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "schedule/wait/adaptive_wait.h"

namespace afd::schedule {

// Until `holds()`. After a minute it fails the test.
template <typename Holds>
void await(Holds&& holds) {
    const uint64_t deadline_us = steady_now_us() + 60'000'000;
    while (!holds() && steady_now_us() < deadline_us) std::this_thread::yield();
    ASSERT_TRUE(holds());
}

}  // namespace afd::schedule
