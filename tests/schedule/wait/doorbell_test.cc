// SPDX-License-Identifier: Apache-2.0
#include "schedule/wait/doorbell.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "proto/cpu_relax.h"
#include "schedule/wait/adaptive_wait.h"
#include "tests/schedule/protocol/local_instance.h"
#include "tests/schedule/protocol/watchdog.h"

namespace afd::schedule {
namespace {

constexpr uint64_t kLongUs = 20 * 1000 * 1000;

struct Line {
    alignas(128) int32_t word = 0;
};

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

// Goal: the four accesses of R9 are totally ordered. Method: two threads meet at a barrier, then
// one arms and looks while the other publishes and looks, for a second, with their phase drifting
// by nanoseconds; no sleeping, so that both really run at once. Oracle: never do both looks come
// too early. With release in place of seq_cst the stores wait in the store buffers and both miss.
TEST(Doorbell, EitherFindsTheFlagOrIsFoundArmed) {
    Watchdog watchdog(200);
    EventFds fds(1);
    Words words;
    Line arrived[2];
    Line last_turn;
    Line rang;
    const auto meet = [&arrived](int me, int32_t turn) {
        publish_release(arrived[me].word, turn);
        for (int spins = 0; observe(arrived[1 - me].word, Order::kAcquire) < turn; ++spins) {
            if (spins > 20000) std::this_thread::yield();
        }
    };
    const auto drift = [&words](int32_t steps) {
        for (int32_t step = 0; step < steps; ++step) observe(words.flag, Order::kAcquire);
    };
    std::thread publisher([&] {
        const DoorbellRinger ringer(&words.armed, fds[0]);
        for (int32_t turn = 1; observe(last_turn.word, Order::kAcquire) == 0; ++turn) {
            meet(1, 2 * turn - 1);
            drift(turn % 127);
            publish_seq_cst(words.flag, turn);
            rang.word = ringer.ring_if_armed() ? 1 : 0;
            meet(1, 2 * turn);
            meet(1, 2 * turn + 1);
        }
    });
    Doorbell doorbell(&words.armed, fds[0]);
    const uint64_t end_us = steady_now_us() + 1000000;
    int num_lost = 0;
    int32_t turn = 1;
    for (; last_turn.word == 0; ++turn) {
        meet(0, 2 * turn - 1);
        drift(turn % 61);
        doorbell.arm();
        const bool found = observe(words.flag, Order::kSeqCst) == turn;
        meet(0, 2 * turn);
        num_lost += !found && rang.word == 0 ? 1 : 0;
        doorbell.disarm();
        if (steady_now_us() >= end_us) publish_release(last_turn.word, 1);
        meet(0, 2 * turn + 1);
    }
    publisher.join();
    EXPECT_EQ(num_lost, 0) << "of " << turn << " turns";
}

// Goal: no wake-up is lost between "look" and "sleep" (R9). Method: two threads play ping-pong,
// each publishing a number and then sleeping, without spinning, until it sees the other's; every
// turn passes through arm, look and poll at a slightly different phase. Oracle: no sleep ends by
// its long deadline.
TEST(Doorbell, LosesNoWakeUp) {
    Watchdog watchdog(200);
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

// Facing a peer without progress it must not spin: it looks with kAcquire once, then only around
// sleeping.
TEST(AdaptiveWait, SleepsAtOnceWhereSpinningWouldStealThePeersTime) {
    EventFds fds(1);
    Words words;
    for (const bool yields : {true, false}) {
        AdaptiveWait wait(Doorbell(&words.armed, fds[0]), 1000000, yields);
        int num_looks = 0;
        EXPECT_FALSE(wait.until(steady_now_us() + 5000, false, [&](Order) {
            ++num_looks;
            return false;
        }));
        EXPECT_LE(num_looks, 6);
    }
}

// Goal: threads that share a core hand it over while they wait awake. Method: two threads on one
// core play ping-pong with waits that never come to sleeping. Oracle: every ping is answered, and a
// thread that kept its core until the scheduler takes it away (milliseconds) would need minutes.
TEST(AdaptiveWait, GivesItsCoreAwayBetweenLooks) {
    Watchdog watchdog(30);
    constexpr int32_t kRounds = 20'000;
    EventFds fds(2);
    Words words[2];
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &allowed)) ++cpu;
    const auto play = [&](int self) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
        AdaptiveWait wait(Doorbell(&words[self].armed, fds[self]), 10'000'000, true);
        for (int32_t round = 1; round <= kRounds; ++round) {
            if (self == 0) publish_seq_cst(words[1].flag, round);
            EXPECT_TRUE(wait.until(steady_now_us() + kLongUs, true, [&](Order order) {
                return observe(words[self].flag, order) == round;
            }));
            if (self == 1) publish_seq_cst(words[0].flag, round);
        }
    };
    std::thread peer(play, 1);
    std::thread self(play, 0);
    peer.join();
    self.join();
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
    Watchdog watchdog(60);
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
