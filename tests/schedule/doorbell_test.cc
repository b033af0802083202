// SPDX-License-Identifier: Apache-2.0
#include "schedule/doorbell.h"

#include <gtest/gtest.h>

#include <thread>

#include "schedule/adaptive_wait.h"
#include "tests/schedule/local_instance.h"
#include "tests/schedule/watchdog.h"

namespace afd::schedule {
namespace {

constexpr uint64_t kLongUs = 20 * 1000 * 1000;

// One word per line, as in the segments.
struct Words {
    alignas(128) int32_t armed = 0;
    alignas(128) int32_t flag = 0;
};

TEST(Doorbell, CostsNoWriteWhileTheSleeperIsAwake) {
    EventFds fds(1);
    Words words;
    Doorbell doorbell(&words.armed, fds[0]);
    const DoorbellRinger ringer(&words.armed, fds[0]);
    EXPECT_FALSE(ringer.ring_if_armed());
    EXPECT_FALSE(doorbell.wait(0));
    doorbell.arm();
    EXPECT_TRUE(ringer.ring_if_armed());
    EXPECT_TRUE(ringer.ring_if_armed());
    EXPECT_TRUE(doorbell.wait(kLongUs));
    EXPECT_FALSE(doorbell.wait(0)) << "one wait takes all rings";
    doorbell.disarm();
    EXPECT_FALSE(ringer.ring_if_armed());
    ringer.ring();
    EXPECT_TRUE(doorbell.wait(kLongUs)) << "ring() wakes in any case";
}

// Goal: no wake-up is lost between "look" and "sleep" (R9). Method: two threads play ping-pong,
// each publishing a number and then sleeping, without spinning, until it sees the other's; every
// turn passes through arm, look and poll at a slightly different phase. Oracle: no sleep ends by
// its long deadline. With a weaker order than seq_cst a turn of some thousand is lost.
TEST(Doorbell, LosesNoWakeUp) {
    const Watchdog watchdog(200);
    constexpr int32_t kTurns = 20000;
    EventFds fds(2);
    Words words[2];
    uint64_t num_sleeps[2] = {0, 0};
    const auto play = [&](int me) {
        const int other = 1 - me;
        Doorbell doorbell(&words[me].armed, fds[me]);
        const DoorbellRinger ringer(&words[other].armed, fds[other]);
        for (int32_t turn = 1; turn <= kTurns; ++turn) {
            publish_seq_cst(words[me].flag, turn);
            ringer.ring_if_armed();
            for (int32_t pause = 0; pause < turn % 64; ++pause) cpu_relax();
            while (observe(words[other].flag, Order::kAcquire) < turn) {
                doorbell.arm();
                if (observe(words[other].flag, Order::kSeqCst) < turn) {
                    ++num_sleeps[me];
                    ASSERT_TRUE(doorbell.wait(kLongUs)) << "turn " << turn << " was never rung";
                }
                doorbell.disarm();
            }
        }
    };
    std::thread peer(play, 1);
    play(0);
    peer.join();
    EXPECT_GT(num_sleeps[0] + num_sleeps[1], 100u) << "the test did not test sleeping";
}

TEST(AdaptiveWait, ReturnsAtOnceWhenTheConditionHolds) {
    EventFds fds(1);
    Words words;
    AdaptiveWait wait(Doorbell(&words.armed, fds[0]), 50, false);
    int num_looks = 0;
    EXPECT_TRUE(wait.until(0, true, [&](Order) { return ++num_looks == 1; }));
    EXPECT_EQ(words.armed, 0);
}

TEST(AdaptiveWait, EndsAtItsDeadline) {
    EventFds fds(1);
    Words words;
    for (const uint32_t spin_us : {0u, 100u, 1000000u}) {
        AdaptiveWait wait(Doorbell(&words.armed, fds[0]), spin_us, false);
        const uint64_t deadline_us = steady_now_us() + 2000;
        EXPECT_FALSE(wait.until(deadline_us, true, [](Order) { return false; }));
        EXPECT_GE(steady_now_us(), deadline_us);
        EXPECT_EQ(words.armed, 0) << "publishers must not pay for a sleeper that left";
    }
}

// Oversubscribed, or facing a peer without progress, it must not spin: it looks with kAcquire once,
// then only around sleeping.
TEST(AdaptiveWait, SleepsAtOnceWhereSpinningWouldStealThePeersTime) {
    EventFds fds(1);
    Words words;
    for (const bool oversubscribed : {true, false}) {
        AdaptiveWait wait(Doorbell(&words.armed, fds[0]), 1000000, oversubscribed);
        int num_looks = 0;
        EXPECT_FALSE(wait.until(steady_now_us() + 5000, oversubscribed, [&](Order) {
            ++num_looks;
            return false;
        }));
        EXPECT_LE(num_looks, 6);
    }
}

TEST(AdaptiveWait, LooksWithSeqCstBetweenArmingAndSleeping) {
    EventFds fds(1);
    Words words;
    AdaptiveWait wait(Doorbell(&words.armed, fds[0]), 0, false);
    EXPECT_TRUE(wait.until(steady_now_us() + kLongUs, true, [&](Order order) {
        return order == Order::kSeqCst && words.armed == 1;
    }));
}

TEST(AdaptiveWait, IsWokenByARing) {
    const Watchdog watchdog(60);
    EventFds fds(1);
    Words words;
    std::thread publisher([&] {
        const DoorbellRinger ringer(&words.armed, fds[0]);
        while (observe(words.armed, Order::kSeqCst) == 0) std::this_thread::yield();
        publish_seq_cst(words.flag, 1);
        ringer.ring_if_armed();
    });
    AdaptiveWait wait(Doorbell(&words.armed, fds[0]), 0, false);
    EXPECT_TRUE(wait.until(steady_now_us() + 30 * kLongUs, true, [&](Order order) {
        return observe(words.flag, order) == 1;
    }));
    publisher.join();
}

}  // namespace
}  // namespace afd::schedule
