// SPDX-License-Identifier: Apache-2.0
//
// What a worker's process has of afdd's environment, and what its end is said to be.

#include "daemon/supervisor/worker_process.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>

#include "tests/daemon/loop_helper.h"
#include "tests/daemon/scoped_variable.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

// Goal: a SIGKILL is the kernel's where its count of them has risen, and afdd is none of those who
// sent it. Method: a process that sleeps, in a control group whose count rises by one; its
// connection closes in front of its end, as the kernel does it. Oracle: what its end says.
class WorkerProcessTest : public testing::Test {
  protected:
    WorkerProcessTest() {
        std::filesystem::create_directory(directory_.path("pod"));
        count_kills(3);
        oom_watch_.emplace(directory_.path(),
                           schedule::ControlGroups{.unified = "/pod", .memory = "", .cpu = ""});
    }

    void count_kills(int count) {
        directory_.write("pod/memory.events", "oom_kill " + std::to_string(count) + "\n");
    }

    ProcessEnd end_by(const std::function<void(WorkerProcess&)>& kill) {
        std::optional<ProcessEnd> heard;
        const auto process = WorkerProcess::spawn(
            loop_, "sleep", {"60"}, [&](const ProcessEnd& end) { heard = end; }, *oom_watch_);
        EXPECT_TRUE(process.ok());
        if (!process.ok()) return {};
        kill(*process.value());
        EXPECT_TRUE(run_until(loop_, [&] { return heard.has_value(); }));
        return heard.value_or(ProcessEnd());
    }

    test::TemporaryDirectory directory_;
    std::optional<schedule::OomWatch> oom_watch_;
    EventLoop loop_;
};

TEST_F(WorkerProcessTest, WhomTheKernelEndsLacksMemoryThoughItsConnectionClosesFirst) {
    const ProcessEnd end = end_by([&](WorkerProcess& process) {
        count_kills(4);
        process.end_disconnected();
    });
    EXPECT_EQ(end.signal, SIGKILL);
    EXPECT_TRUE(end.is_out_of_memory);
}

TEST_F(WorkerProcessTest, WhomAfddKillsDoesNotLackMemory) {
    const ProcessEnd end = end_by([&](WorkerProcess& process) {
        count_kills(4);
        const ProcessEnd other = end_by([&](WorkerProcess& later) {
            count_kills(5);
            later.kill();
        });
        EXPECT_FALSE(other.is_out_of_memory) << "the count is somebody else's";
        process.end_disconnected();
    });
    EXPECT_TRUE(end.is_out_of_memory) << "whose it still is";
}

TEST_F(WorkerProcessTest, WhomSomebodyKillsDoesNotLackMemory) {
    const auto kill = [](WorkerProcess& process) { ::kill(process.pid(), SIGKILL); };
    const ProcessEnd end = end_by(kill);
    EXPECT_EQ(end.signal, SIGKILL);
    EXPECT_FALSE(end.is_out_of_memory);
    count_kills(4);
    EXPECT_FALSE(end_by(kill).is_out_of_memory) << "it was not there yet";
}

// Goal: who can read the environment of a worker has no key of the clients. Method: a shell in the
// place of a worker says with its exit code what it has. Oracle: this process's other variable.
TEST(WorkerProcess, HasTheEnvironmentOfAfddWithoutTheApiKey) {
    const ScopedVariable key("AFD_API_KEY", "secret");
    const ScopedVariable other("AFD_API_KEY_OF_NOBODY", "kept");
    constexpr const char* kScript =
        "test -z \"${AFD_API_KEY+x}\" || exit 3; test \"$AFD_API_KEY_OF_NOBODY\" = kept || exit 4";
    EventLoop loop;
    std::optional<ProcessEnd> end;
    const auto process = WorkerProcess::spawn(
        loop, "/bin/sh", {"-c", kScript}, [&end](const ProcessEnd& seen) { end = seen; });
    ASSERT_TRUE(process.ok()) << process.error().message;
    ASSERT_TRUE(run_until(loop, [&end] { return end.has_value(); }));
    EXPECT_EQ(end->status, 0);
}

}  // namespace
}  // namespace afd::daemon
