// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/hang_detector.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

schedule::HeartbeatView beat(uint64_t progress) {
    schedule::HeartbeatView view;
    view.progress = progress;
    view.pid = 77;
    return view;
}

TEST(HangDetector, SilentWorkerThatIsNeededHangs) {
    HangDetector detector(1000);
    EXPECT_FALSE(detector.observe(beat(5), true, 10000));
    EXPECT_FALSE(detector.observe(beat(5), true, 10999));
    EXPECT_TRUE(detector.observe(beat(5), true, 11000));
    EXPECT_EQ(detector.silent_ms(), 1000);
}

TEST(HangDetector, ProgressStartsTheClockAnew) {
    HangDetector detector(1000);
    EXPECT_FALSE(detector.observe(beat(5), true, 10000));
    EXPECT_FALSE(detector.observe(beat(6), true, 10900));
    EXPECT_FALSE(detector.observe(beat(6), true, 11800));
    EXPECT_TRUE(detector.observe(beat(6), true, 11900));
}

TEST(HangDetector, IdleWorkerNeverHangs) {
    HangDetector detector(1000);
    for (uint64_t now = 0; now < 100000; now += 500) {
        EXPECT_FALSE(detector.observe(beat(5), false, now));
    }
}

TEST(HangDetector, WorkerThatSleptLongGetsTheWholeTimeoutWhenWorkComes) {
    HangDetector detector(1000);
    EXPECT_FALSE(detector.observe(beat(5), false, 0));
    EXPECT_FALSE(detector.observe(beat(5), false, 50000));
    EXPECT_FALSE(detector.observe(beat(5), true, 50500));
    EXPECT_TRUE(detector.observe(beat(5), true, 51000));
}

TEST(HangDetector, TimeoutZeroMeansNever) {
    HangDetector detector(0);
    EXPECT_FALSE(detector.observe(beat(5), true, 0));
    EXPECT_FALSE(detector.observe(beat(5), true, 1000000));
}

TEST(HangDetector, SuccessorStartsWithACleanSlate) {
    HangDetector detector(1000);
    EXPECT_FALSE(detector.observe(beat(5), true, 0));
    detector.restart(5000);
    EXPECT_FALSE(detector.observe(beat(5), true, 5500));
    EXPECT_TRUE(detector.observe(beat(5), true, 6500));
}

}  // namespace
}  // namespace afd::daemon
