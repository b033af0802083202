// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/stop_detector.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

TEST(StopDetector, SaysSoAfterTheTimeoutOfBeingStoppedAndNeeded) {
    StopDetector detector(1000);
    EXPECT_FALSE(detector.observe(true, 5000));
    EXPECT_FALSE(detector.observe(true, 5500));
    EXPECT_FALSE(detector.observe(true, 5999));
    EXPECT_TRUE(detector.observe(true, 6000));
}

TEST(StopDetector, ALookInBetweenAtWhichItRunsStartsTheClockAnew) {
    StopDetector detector(1000);
    EXPECT_FALSE(detector.observe(true, 5000));
    EXPECT_FALSE(detector.observe(false, 5500));
    EXPECT_FALSE(detector.observe(true, 6000));
    EXPECT_FALSE(detector.observe(true, 6500));
    EXPECT_FALSE(detector.observe(true, 6999));
    EXPECT_TRUE(detector.observe(true, 7000));
}

// The first look after that may still see the worker as it was before.
TEST(StopDetector, TimeInWhichAfddWasStoppedTooDoesNotCount) {
    StopDetector detector(1000);
    EXPECT_FALSE(detector.observe(true, 5000));
    EXPECT_FALSE(detector.observe(true, 60'000));
    EXPECT_FALSE(detector.observe(true, 60'250));
    EXPECT_TRUE(detector.observe(true, 60'500));
}

TEST(StopDetector, TimeoutZeroMeansNever) {
    StopDetector detector(0);
    EXPECT_FALSE(detector.is_on());
    EXPECT_FALSE(detector.observe(true, 0));
    EXPECT_FALSE(detector.observe(true, 1000000));
}

}  // namespace
}  // namespace afd::daemon
