// SPDX-License-Identifier: Apache-2.0
#include "daemon/cluster/refusal_log.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

TEST(RefusalLog, SaysEachReasonOfAnAddressOnceAndLaterHowOftenItWas) {
    RefusalLog log;
    EXPECT_EQ(log.take("10.0.0.5:1000", "no certificate", 0), "");
    for (uint64_t i = 1; i <= 60; ++i) {
        const std::string peer = "10.0.0.5:" + std::to_string(1000 + i);
        EXPECT_EQ(log.take(peer, "no certificate", 1000 * i), std::nullopt);
    }
    EXPECT_EQ(log.take("10.0.0.5:1", "expired", 61'000), "") << "another reason";
    EXPECT_EQ(log.take("10.0.0.6:1", "no certificate", 61'000), "") << "another address";
    EXPECT_EQ(log.take("10.0.0.5:1", "no certificate", RefusalLog::kAgainMs),
              " (60 times more in the last ten minutes)");
    EXPECT_EQ(log.take("10.0.0.5:1", "no certificate", RefusalLog::kAgainMs + 1), std::nullopt);
}

TEST(RefusalLog, KnowsAReasonWithoutThePeerInFront) {
    EXPECT_EQ(RefusalLog::reason_of("10.0.0.5:1000", "10.0.0.5:1000: closed"), "closed");
    EXPECT_EQ(RefusalLog::reason_of("10.0.0.5:1000", "10.0.0.5:1001: x"), "10.0.0.5:1001: x");
}

// Addresses of IPv6 are as many as one likes: neither memory nor log grows with them.
TEST(RefusalLog, StrangersWithoutNumberShareOneLineASecond) {
    RefusalLog log;
    size_t num_said = 0;
    for (size_t i = 0; i < 10'000; ++i) {
        num_said +=
            log.take("[fd00::" + std::to_string(i) + "]:1", "no certificate", i).has_value();
    }
    EXPECT_LE(num_said, RefusalLog::kEntriesMax + 11);
    EXPECT_GT(num_said, RefusalLog::kEntriesMax);
    // What was said long ago makes room.
    EXPECT_EQ(log.take("[fd01::1]:1", "no certificate", 10 * RefusalLog::kAgainMs), "");
}

}  // namespace
}  // namespace afd::daemon
