// SPDX-License-Identifier: Apache-2.0
#include "schedule/context/heartbeat.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace afd::schedule {
namespace {

TEST(Heartbeat, ShowsWhatTheWriterDoes) {
    HeartbeatWords words{};
    EXPECT_EQ(read_heartbeat(words).pid, 0);
    Heartbeat heartbeat(&words);
    heartbeat.start(77);
    HeartbeatView view = read_heartbeat(words);
    EXPECT_EQ(view.pid, 77);
    EXPECT_EQ(view.state, WorkerState::kStarting);
    const WaitInfo wait{WaitKind::kResults, 1, 2, 3, 4, 5};
    heartbeat.set_waiting(wait);
    EXPECT_GT(read_heartbeat(words).progress, view.progress);
    view = read_heartbeat(words);
    EXPECT_EQ(view.state, WorkerState::kWaiting);
    EXPECT_EQ(view.wait, wait);
    heartbeat.set_computing();
    EXPECT_EQ(read_heartbeat(words).state, WorkerState::kComputing);
    EXPECT_EQ(read_heartbeat(words).wait, WaitInfo{});
}

// A successor must describe itself although its predecessor was killed between two stores.
TEST(Heartbeat, RecoversFromAWriterKilledInTheMiddle) {
    HeartbeatWords words{};
    words.sequence = 7;
    words.state = 99;
    words.wait[0] = 42;
    EXPECT_EQ(read_heartbeat(words).state, WorkerState::kStarting);
    EXPECT_EQ(read_heartbeat(words).wait.kind, WaitKind::kNone);
    Heartbeat heartbeat(&words);
    heartbeat.start(5);
    heartbeat.set_idle();
    EXPECT_EQ(words.sequence % 2, 0);
    EXPECT_EQ(read_heartbeat(words).state, WorkerState::kIdle);
}

// Goal: an image brings a heartbeat to where no memory is shared. Oracle: what was described; and
// of bytes that nobody has written so, what read_heartbeat() says of a bad segment.
TEST(Heartbeat, TravelsAsAnImage) {
    HeartbeatWords here{};
    Heartbeat heartbeat(&here);
    heartbeat.start(77);
    const WaitInfo wait{WaitKind::kGrant, 1, 2, 3, 4, 5};
    heartbeat.set_waiting(wait);
    HeartbeatWords there{};
    there.sequence = 3;  // Of a process that was killed while it stored.
    store_image(image_of(read_heartbeat(here)), there);
    const HeartbeatView view = read_heartbeat(there);
    EXPECT_EQ(view.progress, read_heartbeat(here).progress);
    EXPECT_EQ(view.pid, 77);
    EXPECT_EQ(view.state, WorkerState::kWaiting);
    EXPECT_EQ(view.wait, wait);
    EXPECT_EQ(there.sequence % 2, 0);
    store_image({.progress = 1, .pid = -1, .state = 99, .wait = {99, -1, -1, -1, -1, -1}}, there);
    EXPECT_EQ(read_heartbeat(there).state, WorkerState::kStarting);
    EXPECT_EQ(read_heartbeat(there).wait.kind, WaitKind::kNone);
}

TEST(HeartbeatObserver, AgesByItsOwnClock) {
    HeartbeatObserver observer;
    HeartbeatView view{.progress = 10, .pid = 1, .state = WorkerState::kIdle, .wait = {}};
    EXPECT_EQ(observer.observe(view, 1000), 0u);
    EXPECT_EQ(observer.observe(view, 1500), 500u);
    view.progress = 11;
    EXPECT_EQ(observer.observe(view, 1600), 0u);
    EXPECT_EQ(observer.observe(view, 1700), 100u);
    view.pid = 2;
    EXPECT_EQ(observer.observe(view, 1800), 0u);
}

TEST(DescribeWait, SaysWhoWaitsForWhomAndWhy) {
    const PeerState peer{{.progress = 1, .pid = 456, .state = WorkerState::kComputing, .wait = {}},
                         2500000};
    EXPECT_EQ(
        describe_wait(Role::kAttention, 2, 123, WaitInfo{WaitKind::kResults, 1, 3, 5, 6, 7}, peer),
        "session 2 (pid 123) waits for results of ffn rank 1 (pid 456): micro-batch 3, "
        "layer 5, flag seen 6, flag expected 7");
    EXPECT_EQ(
        describe_wait(Role::kFfn, 1, 123, WaitInfo{WaitKind::kDispatch, 4, 0, 0, 0, 0}, peer),
        "ffn rank 1 (pid 123) waits for a dispatch of session 4 (pid 456): micro-batch 0, layer "
        "0, flag seen 0, flag expected 0");
    EXPECT_EQ(describe_peer(peer), "the peer is computing, its last heartbeat 2500 ms ago");
}

// Goal: a reader never sees a mixture of two descriptions. Method: one thread writes waits whose
// words are all equal, another reads. Oracle: all words of every view agree; progress only grows.
TEST(Heartbeat, NeverShowsAMixtureOfTwoWaits) {
    HeartbeatWords words{};
    Heartbeat heartbeat(&words);
    heartbeat.start(1);
    heartbeat.set_waiting({WaitKind::kResults, 1, 1, 1, 1, 1});
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        // Relaxed: a stop request orders nothing.
        for (int32_t i = 1; !stop.load(std::memory_order_relaxed); i = i % 1000 + 1) {
            heartbeat.set_waiting({WaitKind::kResults, i, i, i, i, i});
            // Readers give up after some tries against a writer that never pauses.
            for (int pause = 0; pause < 20; ++pause) std::this_thread::yield();
        }
    });
    uint64_t progress = 0;
    for (int i = 0; i < 20000; ++i) {
        const HeartbeatView view = read_heartbeat(words);
        ASSERT_GE(view.progress, progress);
        progress = view.progress;
        const int32_t value = view.wait.peer;
        ASSERT_EQ(view.wait, (WaitInfo{WaitKind::kResults, value, value, value, value, value}));
    }
    stop.store(true, std::memory_order_relaxed);  // Relaxed: join orders what matters.
    writer.join();
}

}  // namespace
}  // namespace afd::schedule
