// SPDX-License-Identifier: Apache-2.0
//
// Goal: whoever waits to write hears of a peer that has reset the connection, and can wait again.
// Method: one end of a socket pair is full, and the other one closes with bytes unread. Oracle: the
// events that come.
#include "daemon/loop/event_loop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "daemon/loop/unique_fd.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

TEST(FdWatcher, AnErrorIsToldToWhoWaitsToWriteAndCanBeWaitedForAgain) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    const UniqueFd socket(ends[0]);
    UniqueFd peer(ends[1]);
    const std::array<char, 4096> bytes{};
    while (::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
    EventLoop loop;
    int num_calls = 0;
    int events = 0;
    FdWatcher watcher(loop, socket.get(), [&](int ready) {
        ++num_calls;
        events = ready;
    });
    watcher.watch(UV_WRITABLE);
    EXPECT_FALSE(run_for(loop, 20, [&] { return num_calls > 0; })) << "it is full";
    peer.reset();
    ASSERT_TRUE(run_until(loop, [&] { return num_calls > 0; }));
    EXPECT_EQ(events, UV_READABLE | UV_WRITABLE);
    watcher.watch(UV_WRITABLE);
    EXPECT_TRUE(run_until(loop, [&] { return num_calls > 1; })) << "nothing is watched any more";
}

// As where a program gives up before it runs its loop. An end that finds watchers still aborts.
TEST(EventLoop, EndsBehindAStopThatCameBeforeItRan) {
    EventLoop loop;
    const Timer timer(loop, [] {});
    loop.stop();
}

}  // namespace
}  // namespace afd::daemon
