// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/acceptor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <vector>

#include "proto/socket_path.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

// Goal: who else has something to do on the loop does not wait for all who connect at once. Method:
// many connections wait; the loop is turned by hand. Oracle: how many are taken in each turn.
TEST(Acceptor, TakesNoMoreThanItsShareOfATurn) {
    constexpr int kWaiting = 3 * Acceptor::kConnectionsPerTurn + 4;
    const test::TemporaryDirectory directory;
    const sockaddr_un address = socket_address(directory.path("many.sock")).value();
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    UniqueFd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ASSERT_EQ(::bind(listening.get(), generic, sizeof(address)), 0);
    ASSERT_EQ(::listen(listening.get(), kWaiting), 0);
    std::vector<UniqueFd> clients;
    for (int i = 0; i < kWaiting; ++i) {
        clients.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(::connect(clients.back().get(), generic, sizeof(address)), 0);
    }
    EventLoop loop;
    int num_taken = 0;
    const Acceptor acceptor(loop, std::move(listening), "test", [&](UniqueFd) { ++num_taken; });
    for (int turn = 1; num_taken < kWaiting; ++turn) {
        const int before = num_taken;
        uv_run(loop.uv(), UV_RUN_NOWAIT);
        ASSERT_LE(num_taken - before, Acceptor::kConnectionsPerTurn) << "turn " << turn;
        ASSERT_LT(turn, kWaiting) << num_taken;
    }
    EXPECT_EQ(num_taken, kWaiting);
}

}  // namespace
}  // namespace afd::daemon
