// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/turn_watch.h"

#include <gtest/gtest.h>

namespace afd::schedule {
namespace {

constexpr uint64_t kSecond = 1'000'000;

TEST(TurnWatch, AThreadThatComesRoundIsNotStuck) {
    TurnWatch watch(2 * kSecond);
    for (uint64_t second = 100; second < 200; ++second) {
        // Once in two looks.
        EXPECT_FALSE(watch.is_stuck(second / 2, second * kSecond)) << second;
    }
}

TEST(TurnWatch, OneThatStandsStillIsStuckBehindTheLimit) {
    TurnWatch watch(2 * kSecond);
    EXPECT_FALSE(watch.is_stuck(7, 100 * kSecond));
    EXPECT_FALSE(watch.is_stuck(7, 101 * kSecond));
    EXPECT_FALSE(watch.is_stuck(7, 102 * kSecond));
    EXPECT_TRUE(watch.is_stuck(7, 102 * kSecond + 1));
    EXPECT_FALSE(watch.is_stuck(8, 103 * kSecond)) << "it has come back";
}

TEST(TurnWatch, AProcessThatWasStoppedIsNotStuck) {
    TurnWatch watch(2 * kSecond);
    EXPECT_FALSE(watch.is_stuck(7, 100 * kSecond));
    EXPECT_FALSE(watch.is_stuck(7, 1000 * kSecond)) << "one look is one second at most";
    EXPECT_FALSE(watch.is_stuck(7, 2000 * kSecond));
    EXPECT_TRUE(watch.is_stuck(7, 3000 * kSecond));
}

}  // namespace
}  // namespace afd::schedule
