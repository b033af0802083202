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

// As if all had been stopped between two looks: docker pause, for example.
TEST(HangDetector, NobodyHangsBecauseEverythingWasStopped) {
    HangDetector detector(60'000);
    EXPECT_FALSE(detector.observe(beat(5), true, 10'000));
    EXPECT_FALSE(detector.observe(beat(5), true, 12'000));
    EXPECT_FALSE(detector.observe(beat(5), true, 3'000'000));
    EXPECT_FALSE(detector.observe(beat(5), true, 3'002'000));
    uint64_t now_ms = 3'002'000;
    while (!detector.observe(beat(5), true, now_ms) && now_ms < 4'000'000) now_ms += 2'000;
    EXPECT_EQ(now_ms, 3'000'000 + 60'000 - 2'000 - HangDetector::kLookMsMax);
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
