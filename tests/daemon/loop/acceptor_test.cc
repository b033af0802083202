// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/acceptor.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <vector>

#include "daemon/program/logging.h"
#include "proto/socket_path.h"
#include "tests/daemon/loop_helper.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

struct Waiting {
    UniqueFd listening;
    std::vector<UniqueFd> clients;
};

// Connections that nobody has taken yet.
Waiting make_waiting(const test::TemporaryDirectory& directory, int num_clients) {
    const sockaddr_un address = socket_address(directory.path("many.sock")).value();
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    Waiting waiting;
    waiting.listening.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::bind(waiting.listening.get(), generic, sizeof(address)), 0);
    EXPECT_EQ(::listen(waiting.listening.get(), num_clients), 0);
    for (int i = 0; i < num_clients; ++i) {
        waiting.clients.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(waiting.clients.back().get(), generic, sizeof(address)), 0);
    }
    return waiting;
}

// Goal: who else has something to do on the loop does not wait for all who connect at once. Method:
// many connections wait; the loop is turned by hand. Oracle: how many are taken in each turn.
TEST(Acceptor, TakesNoMoreThanItsShareOfATurn) {
    constexpr int kWaiting = 3 * Acceptor::kConnectionsPerTurn + 4;
    const test::TemporaryDirectory directory;
    Waiting waiting = make_waiting(directory, kWaiting);
    EventLoop loop;
    int num_taken = 0;
    const Acceptor acceptor(
        loop, std::move(waiting.listening), "test", [&](UniqueFd) { ++num_taken; });
    for (int turn = 1; num_taken < kWaiting; ++turn) {
        const int before = num_taken;
        uv_run(loop.uv(), UV_RUN_NOWAIT);
        ASSERT_LE(num_taken - before, Acceptor::kConnectionsPerTurn) << "turn " << turn;
        ASSERT_LT(turn, kWaiting) << num_taken;
    }
    EXPECT_EQ(num_taken, kWaiting);
}

// Goal: whoever is short of descriptors has no line for each retry, and takes who waits when there
// are some again. Method: a limit of as many as there are, for three retries. Oracle: the lines.
TEST(Acceptor, AShortageOfDescriptorsIsALineNowAndThen) {
    const test::TemporaryDirectory directory;
    Waiting waiting = make_waiting(directory, 1);
    EventLoop loop;
    int num_taken = 0;
    const Acceptor acceptor(
        loop, std::move(waiting.listening), "test", [&](UniqueFd) { ++num_taken; });
    set_up_logging("test", "warn", "text");
    testing::internal::CaptureStderr();
    // A sanitizer that meets a class for the first time makes a pipe, or ends the process.
    log::warn("before");
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_FALSE(run_for(loop, 1800, [&] { return num_taken > 0; }));
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    const std::string lines = testing::internal::GetCapturedStderr();
    set_log_level("off");
    const std::string line = "cannot accept a connection on 'test': ";
    const size_t first = lines.find(line);
    EXPECT_NE(first, std::string::npos) << lines;
    EXPECT_EQ(lines.find(line, first + 1), std::string::npos) << lines;
    EXPECT_TRUE(run_until(loop, [&] { return num_taken == 1; }));
}

}  // namespace
}  // namespace afd::daemon
