// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/rate_meter.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

TEST(RateMeter, AveragesTheLastFiveWholeSeconds) {
    RateMeter meter;
    for (uint64_t second = 100; second < 110; ++second) meter.add(50, second * 1000 + 999);
    EXPECT_DOUBLE_EQ(meter.per_second(110 * 1000), 50.0);
}

TEST(RateMeter, LeavesTheRunningSecondOut) {
    RateMeter meter;
    meter.add(1000, 5500);
    EXPECT_DOUBLE_EQ(meter.per_second(5900), 0.0);
    EXPECT_DOUBLE_EQ(meter.per_second(6000), 200.0);
}

TEST(RateMeter, ForgetsAfterAPause) {
    RateMeter meter;
    meter.add(1000, 5500);
    EXPECT_DOUBLE_EQ(meter.per_second(10999), 200.0);
    EXPECT_DOUBLE_EQ(meter.per_second(11000), 0.0);
    EXPECT_DOUBLE_EQ(meter.per_second(1000000), 0.0);
}

}  // namespace
}  // namespace afd::daemon
