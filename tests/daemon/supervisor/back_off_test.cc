// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/back_off.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

TEST(BackOff, DoublesUpToItsLimit) {
    BackOff back_off(100, 500, 10000);
    EXPECT_EQ(back_off.failed(0), 100);
    EXPECT_EQ(back_off.failed(1), 200);
    EXPECT_EQ(back_off.failed(2), 400);
    EXPECT_EQ(back_off.failed(3), 500);
    EXPECT_EQ(back_off.failed(4), 500);
}

TEST(BackOff, StartsAnewOnlyAfterGoodHealth) {
    BackOff back_off(100, 5000, 10000);
    EXPECT_EQ(back_off.failed(0), 100);
    back_off.healthy(1000);
    EXPECT_EQ(back_off.failed(10999), 200);
    back_off.healthy(20000);
    EXPECT_EQ(back_off.failed(30000), 100);
}

TEST(BackOff, StartsAnewWhenFailuresAreForgotten) {
    BackOff back_off(100, 5000, 10000);
    EXPECT_EQ(back_off.failed(0), 100);
    EXPECT_EQ(back_off.failed(1), 200);
    back_off.forget();
    EXPECT_EQ(back_off.failed(2), 100);
    EXPECT_EQ(back_off.failed(3), 200);
}

TEST(BackOff, HealthOfAnEarlierProcessDoesNotCount) {
    BackOff back_off(100, 5000, 10000);
    back_off.healthy(0);
    EXPECT_EQ(back_off.failed(20000), 100);
    EXPECT_EQ(back_off.failed(40000), 200);
}

}  // namespace
}  // namespace afd::daemon
