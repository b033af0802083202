// SPDX-License-Identifier: Apache-2.0
#include "schedule/wait/lived_time.h"

#include <gtest/gtest.h>

namespace afd::schedule {
namespace {

TEST(LivedTime, RunsWithTheClockOfWhoLooksOften) {
    LivedTime time(10);
    const uint64_t start = time.at(1000);
    EXPECT_EQ(time.at(1003) - start, 3U);
    EXPECT_EQ(time.at(1003) - start, 3U);
    EXPECT_EQ(time.at(1013) - start, 13U);
}

TEST(LivedTime, HasNotLivedThroughWhatLiesBetweenTwoLooks) {
    LivedTime time(10);
    const uint64_t start = time.at(1000);
    EXPECT_EQ(time.at(5000) - start, 10U);
    EXPECT_EQ(time.at(5004) - start, 14U);
}

}  // namespace
}  // namespace afd::schedule
