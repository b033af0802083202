// SPDX-License-Identifier: Apache-2.0
//
// The stand-in of a worker on another host, as a program, and this process as its afdd.
#include "daemon/cluster/stand_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <thread>

#include "daemon/control/control_channel.h"
#include "proto/socket_path.h"
#include "schedule/shared_memory/segment.h"
#include "schedule/shared_memory/segment_name.h"
#include "tests/clients/program.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

constexpr int kPatienceMs = 30'000;

// The next message; false: none came.
bool receive(ControlChannel& channel, control::WorkerMessage& message) {
    bool is_over = false;
    while (true) {
        const Result<bool> next = channel.next(message);
        if (!next.ok() || next.value()) return next.ok();
        pollfd entry{channel.fd(), POLLIN, 0};
        if (is_over || ::poll(&entry, 1, kPatienceMs) <= 0) return false;
        is_over = !channel.read().ok();
    }
}

// Listens at `path`, welcomes one FFN worker, and hears what it says then.
class FakeAfdd {
  public:
    explicit FakeAfdd(const std::string& path)
        : listening_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const sockaddr_un address = socket_address(path).value();
        const auto* generic = reinterpret_cast<const sockaddr*>(&address);
        EXPECT_EQ(::bind(listening_.get(), generic, sizeof(address)), 0);
        EXPECT_EQ(::listen(listening_.get(), 1), 0);
        thread_ = std::thread([this] { serve(); });
    }
    FakeAfdd(const FakeAfdd&) = delete;
    FakeAfdd& operator=(const FakeAfdd&) = delete;
    ~FakeAfdd() {
        if (thread_.joinable()) thread_.join();
    }

    // What the worker said behind its Hello.
    const control::WorkerMessage& wait() {
        thread_.join();
        return said_;
    }

  private:
    void serve() {
        pollfd entry{listening_.get(), POLLIN, 0};
        ASSERT_GT(::poll(&entry, 1, kPatienceMs), 0);
        ControlChannel channel(UniqueFd(::accept(listening_.get(), nullptr, nullptr)));
        control::WorkerMessage hello;
        ASSERT_TRUE(receive(channel, hello) && hello.has_hello());
        const std::string prefix = schedule::segment_prefix("test", 1);
        control::SupervisorMessage answer;
        control::Welcome& welcome = *answer.mutable_welcome();
        welcome.set_segment_prefix(prefix);
        welcome.mutable_host()->set_name("b");
        std::vector<schedule::Segment> segments;
        // The first is its doorbell, which it does not look at.
        std::vector<int> fds{listening_.get()};
        for (const auto kind : {schedule::SegmentKind::kControl, schedule::SegmentKind::kMetrics}) {
            const std::string name = schedule::segment_name(prefix, schedule::Role::kFfn, 0, kind);
            segments.push_back(schedule::Segment::create_unnamed(name, 1 << 20).value());
            welcome.add_segments(name);
            fds.push_back(segments.back().descriptor());
        }
        welcome.set_num_fds(static_cast<uint32_t>(fds.size()));
        channel.queue(answer, fds);
        ASSERT_TRUE(channel.flush().ok() && !channel.wants_write());
        ASSERT_TRUE(receive(channel, said_));
    }

    UniqueFd listening_;
    std::thread thread_;
    control::WorkerMessage said_;
};

// Goal: a stand-in that cannot begin says why and ends in order. Method: a cluster directory
// without certificates. Oracle: its exit status, and what afdd hears.
TEST(StandIn, ThatCannotReachItsHostSaysWhyAndEndsWithOne) {
    const test::TemporaryDirectory directory;
    const test::TemporaryDirectory no_certificates;
    const std::string socket = directory.path("control.sock");
    FakeAfdd afdd(socket);
    const auto outcome = afd::test::run_program({AFD_STAND_IN,
                                                 "--role",
                                                 "ffn",
                                                 "--index",
                                                 "0",
                                                 "--control-socket",
                                                 socket,
                                                 "--cluster-dir",
                                                 no_certificates.path()});
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    const control::WorkerMessage& said = afdd.wait();
    ASSERT_TRUE(said.has_fatal()) << said.ShortDebugString();
    EXPECT_THAT(said.fatal().message(), ::testing::HasSubstr(no_certificates.path()));
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(said.fatal().message()));
}

TEST(StandIn, RefusesAWrongCommandLineAsTheOtherProgramsDo) {
    const auto outcome = afd::test::run_program({AFD_STAND_IN, "--role", "cook"});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, ::testing::HasSubstr("afd-stand-in: "));
    EXPECT_THAT(outcome.err, ::testing::HasSubstr("(see afd-stand-in --help)"));
}

}  // namespace
}  // namespace afd::daemon
