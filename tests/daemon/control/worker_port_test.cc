// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/worker_port.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <limits>
#include <string>
#include <thread>

#include "proto/cpu_relax.h"
#include "schedule/context/heartbeat.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {
namespace {

bool is_readable(int fd, int timeout_ms) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, timeout_ms) > 0;
}

// Goal: a report of a wait is whole, whatever its numbers: one that ended within a number named
// another round. Method: the largest that there are, in the longest kind of wait. Oracle: the texts
// that were put together.
TEST(WorkerEvent, AReportOfAWaitIsWholeWithTheLargestNumbers) {
    constexpr int32_t kPidMax = 4'194'304;  // The kernel's.
    constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
    schedule::PeerState peer;
    peer.heartbeat.pid = kPidMax;
    peer.heartbeat.state = schedule::WorkerState::kComputing;
    peer.heartbeat_age_us = uint64_t{100} * 24 * 3600 * 1'000'000;
    const std::string told = schedule::describe_peer(peer);
    for (int32_t kind = 1; kind <= static_cast<int32_t>(schedule::WaitKind::kGrant); ++kind) {
        const schedule::WaitInfo wait{
            static_cast<schedule::WaitKind>(kind), 1023, 63, kLeast, kLeast, kLeast};
        const std::string text =
            schedule::describe_wait(schedule::Role::kAttention, 1023, kPidMax, wait, peer);
        WorkerEvent event;
        event.set_wait(text, 255, told);
        EXPECT_EQ(std::string(event.text), text + "; " + told);
        EXPECT_EQ(std::string(event.text + event.peer_at), told);
        EXPECT_LT(("no slot: " + text + "; " + told).size(), kEventTextBytes);
    }
}

TEST(WorkerEvent, WhatHasNoRoomIsLeftOutWhole) {
    const std::string wait(kEventTextBytes - 10, 'w');
    WorkerEvent event;
    event.set_wait(wait, 3, "the peer is idle");
    EXPECT_EQ(std::string(event.text), wait);
    EXPECT_EQ(event.peer_at, 0);
}

TEST(WorkerPort, WakesTheControlThreadOnlyWhileItSleeps) {
    WorkerPort port(8, 8, -1);
    EXPECT_TRUE(port.push({}));
    port.flush();
    EXPECT_TRUE(is_readable(port.wake_fd(), 0));
    port.begin_drain();
    EXPECT_FALSE(is_readable(port.wake_fd(), 0));
    EXPECT_TRUE(port.push({}));
    port.flush();
    EXPECT_FALSE(is_readable(port.wake_fd(), 0)) << "it is awake";
    EXPECT_FALSE(port.rest()) << "an event came meanwhile";
    WorkerEvent event;
    EXPECT_TRUE(port.pop_event(event));
    EXPECT_TRUE(port.pop_event(event));
    EXPECT_TRUE(port.rest());
}

// The data thread flushes at every layer, but has events once a step.
TEST(WorkerPort, AFlushWithoutAnEventWakesNobody) {
    WorkerPort port(8, 8, -1);
    port.flush();
    EXPECT_FALSE(is_readable(port.wake_fd(), 0));
    EXPECT_TRUE(port.push({}));
    port.flush();
    port.begin_drain();
    WorkerEvent event;
    EXPECT_TRUE(port.pop_event(event));
    EXPECT_TRUE(port.rest());
    port.flush();
    EXPECT_FALSE(is_readable(port.wake_fd(), 0)) << "its event was flushed before";
}

TEST(WorkerPort, FullRingsSaySo) {
    WorkerPort port(2, 1, -1);
    EXPECT_EQ(port.event_room(), 2U);
    EXPECT_TRUE(port.push({}));
    EXPECT_TRUE(port.push({}));
    EXPECT_FALSE(port.push({}));
    EXPECT_EQ(port.event_room(), 0U);
    EXPECT_TRUE(port.push_command({}));
    EXPECT_FALSE(port.push_command({}));
}

TEST(WorkerPort, CommandsRingTheDoorbell) {
    const UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    WorkerPort port(2, 4, doorbell.get());
    EXPECT_FALSE(port.has_command());
    WorkerCommand command;
    command.kind = WorkerCommand::Kind::kCancel;
    command.sequence_id = 12;
    EXPECT_TRUE(port.push_command(std::move(command)));
    EXPECT_TRUE(is_readable(doorbell.get(), 0));
    ASSERT_TRUE(port.has_command());
    ASSERT_TRUE(port.pop_command(command));
    EXPECT_EQ(command.sequence_id, 12);
}

// Up to some microseconds.
void spin_a_while(uint64_t& noise) {
    noise = noise * 6364136223846793005U + 1442695040888963407U;
    for (uint64_t spins = noise >> 57; spins > 0; --spins) cpu_relax();
}

// Goal: no event is left behind while the control thread sleeps (a lost wake-up). Method: a data
// thread pushes an event, waits until it was taken, and pushes the next after a random moment, so
// that pushes fall before, between and after the steps by which the control thread drains, rests
// and sleeps on the eventfd (as worker_control.cc does), and none is healed by the next one's ring.
// Oracle: every number arrives in order; a sleep that is not woken while an event waits runs into
// the poll's watchdog. A rest() that does not look at the ring again is found in a fraction of a
// second where both threads have a core.
TEST(WorkerPort, NoWakeUpIsLost) {
    constexpr uint64_t kEvents = 20000;
    constexpr int kWatchdogMs = 20000;
    WorkerPort port(64, 1, -1);
    // Release of the control thread, acquire of the data thread; kEvents as well once it gave up.
    std::atomic<uint64_t> taken = 0;
    std::thread data([&] {
        uint64_t noise = 1;
        for (uint64_t i = 1; i <= kEvents; ++i) {
            WorkerEvent event;
            event.sequence_id = i;
            EXPECT_TRUE(port.push(std::move(event)));
            port.flush();
            while (taken.load(std::memory_order_acquire) < i) std::this_thread::yield();
            spin_a_while(noise);
        }
    });
    uint64_t noise = 2;
    uint64_t expected = 1;
    bool is_lost = false;
    while (expected <= kEvents && !is_lost) {
        if (!is_readable(port.wake_fd(), kWatchdogMs)) is_lost = true;
        port.begin_drain();
        do {
            WorkerEvent event;
            while (port.pop_event(event)) {
                EXPECT_EQ(event.sequence_id, expected);
                taken.store(expected++, std::memory_order_release);
            }
            // The next push can fall between the last look and rest().
            spin_a_while(noise);
        } while (!port.rest());
    }
    EXPECT_FALSE(is_lost) << "asleep with event " << expected << " missing";
    taken.store(kEvents, std::memory_order_release);
    data.join();
}

}  // namespace
}  // namespace afd::daemon
