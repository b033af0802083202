// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/slot_health.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

using Verdict = SlotHealth::Verdict;

SlotHealth::Settings health_settings(uint64_t start_attempts, const char* host = "") {
    SlotHealth::Settings settings;
    settings.name = "ffn worker 0";
    settings.host = host;
    settings.start_attempts = start_attempts;
    return settings;
}

TEST(SlotHealth, GivesUpWhatWasNeverReady) {
    SlotHealth health(health_settings(2));
    EXPECT_EQ(health.on_failed("it crashed", false), Verdict::kTryAgain);
    EXPECT_EQ(health.failure(), "");
    EXPECT_EQ(health.on_failed("it crashed", false), Verdict::kGiveUp);
    SlotHealth hopeless(health_settings(2));
    EXPECT_EQ(hopeless.on_failed("no such file", true), Verdict::kGiveUp);
}

TEST(SlotHealth, TriesForEverWhatWasReadyOnce) {
    SlotHealth::Settings by_hand = health_settings(1);
    by_hand.spawn = false;
    SlotHealth health(by_hand);
    health.on_ready();
    EXPECT_EQ(health.on_failed("it crashed", false), Verdict::kFailing);
    EXPECT_EQ(health.failure(), "it crashed; start it again by hand (spawn = false)");
    health.on_ready();
    EXPECT_EQ(health.failure(), "");
}

// One that always died when it was ready has to live for a while.
TEST(SlotHealth, AReadyIsNotEnoughForOneThatDiesWhenItIs) {
    SlotHealth health(health_settings(1));
    health.on_ready();
    health.on_short_life();
    EXPECT_EQ(health.on_failed("it died", false, 1), Verdict::kTryAgain);
    health.on_short_life();
    EXPECT_EQ(health.on_failed("it died", false, 1), Verdict::kFailing);
    health.on_ready();
    EXPECT_EQ(health.failure(), "it died");
    EXPECT_TRUE(health.on_settled());
    EXPECT_EQ(health.failure(), "");
    EXPECT_FALSE(health.on_settled());
}

// Goal: what is said of a worker of another host is true at each step of its way back. Oracle: the
// texts.
TEST(SlotHealth, AHostThatIsBackIsWaitedForNoMore) {
    SlotHealth health(health_settings(2, "b"));
    health.on_ready();
    EXPECT_TRUE(health.on_hindered("waits for host 'b' to join"));
    EXPECT_FALSE(health.on_hindered("waits for host 'b' to join")) << "no news";
    EXPECT_TRUE(health.is_hindered());
    EXPECT_EQ(health.failure(), "ffn worker 0 waits for host 'b' to join");
    EXPECT_TRUE(health.on_unhindered());
    EXPECT_FALSE(health.is_hindered());
    EXPECT_EQ(health.failure(), "ffn worker 0: host 'b' has joined; it starts");
    EXPECT_EQ(health.on_failed("it crashed", false), Verdict::kTryAgain);
    EXPECT_FALSE(health.on_unhindered()) << "nothing hindered this one";
    EXPECT_EQ(health.failure(), "ffn worker 0: host 'b' has joined; it starts");
    EXPECT_EQ(health.on_failed("it crashed", false), Verdict::kFailing);
    EXPECT_EQ(health.failure(), "it crashed");
    health.on_ready();
    EXPECT_EQ(health.failure(), "");
}

TEST(SlotHealth, IsJudgedAnewWhenItWasHalted) {
    SlotHealth health(health_settings(2, "b"));
    health.on_hindered("waits for host 'b' to join");
    health.forget();
    EXPECT_EQ(health.failure(), "");
    EXPECT_FALSE(health.on_unhindered());
}

}  // namespace
}  // namespace afd::daemon
