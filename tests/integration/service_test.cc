// SPDX-License-Identifier: Apache-2.0
//
// afdd as a service: what it tells the service manager, and what signals do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/integration/background_generation.h"
#include "tests/notify_socket.h"

namespace afd::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// Goal: afdd is a service of Type=notify with a watchdog. Method: the test is the service manager.
TEST(Service, TellsTheManagerOfItsLife) {
    NotifySocket manager;
    Instance instance({"--attention-workers", "1"},
                      "export NOTIFY_SOCKET=" + manager.path() + " WATCHDOG_USEC=400000");
    EXPECT_THAT(manager.wait_for("READY=1"), HasSubstr("STATUS=serving "));
    instance.wait_ready();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(manager.wait_for("WATCHDOG=1"), "WATCHDOG=1");
    instance.signal(SIGTERM);
    const std::string stopping = manager.wait_for("STOPPING=1");
    EXPECT_THAT(stopping, HasSubstr("EXTEND_TIMEOUT_USEC="));
    EXPECT_EQ(instance.wait_exit(), 0);
}

// Goal: a SIGHUP makes nobody ready. Method: an instance whose workers nobody starts. Oracle: what
// the manager hears until it ends.
TEST(Service, AReloadBeforeItIsReadyIsNoReadiness) {
    NotifySocket manager;
    Instance instance({"--spawn", "false"}, "export NOTIFY_SOCKET=" + manager.path());
    instance.wait_for_log("waiting for workers that are started by hand");
    instance.signal(SIGHUP);
    instance.wait_for_log("SIGHUP: log_level is");
    instance.signal(SIGTERM);
    EXPECT_EQ(instance.wait_exit(), 0);
    std::string said;
    for (std::string next; !(next = manager.next(std::chrono::milliseconds(0))).empty();) {
        said += next + "\n";
    }
    EXPECT_THAT(said, HasSubstr("STOPPING=1"));
    EXPECT_THAT(said, Not(HasSubstr("READY=1")));
}

// Goal: a signal drains, also behind a client that asked for that before: a service manager sends
// one, too. Oracle: the request that runs meanwhile ends whole.
TEST(Service, TheFirstSignalBehindAStopDrains) {
    constexpr uint32_t kDrainedTokens = 600;
    Instance instance(patient_pair());
    instance.wait_ready();
    const pid_t ffn = instance.worker_pids("ffn").at(0);
    BackgroundGeneration background(instance, long_request(kDrainedTokens));
    background.stop_amid(5, ffn);
    const Outcome asked = instance.afdctl({"stop", "--no-wait"});
    EXPECT_EQ(asked.exit_status, 0) << asked.output;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    instance.signal(SIGTERM);
    instance.wait_for_log("it drains already");
    send_signal(ffn, SIGCONT);
    const auto found = background.finish();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids.size(), kDrainedTokens);
    EXPECT_EQ(instance.wait_exit(), 0);
}

// Goal: who stops an instance hears what that cost. Method: a request that cannot go on, and little
// time to drain. Oracle: what afdctl says, and the exit code of afdd.
TEST(Service, StopSaysHowManyRequestsWereCutOff) {
    Instance instance(patient_pair({"--drain-timeout-ms", "200"}));
    instance.wait_ready();
    BackgroundGeneration background(instance, long_request(600));
    background.stop_amid(5, instance.worker_pids("ffn").at(0));
    const Outcome stopped = instance.afdctl({"stop"});
    EXPECT_EQ(stopped.exit_status, 1);
    EXPECT_THAT(stopped.output,
                HasSubstr("afdd has stopped, but 1 request had not finished, and was cut off"));
    EXPECT_FALSE(background.finish().ok());
    EXPECT_EQ(instance.wait_exit(), 6);
}

// Goal: behind `afdctl stop` another afdd may have the name at once. Oracle: the kernel's word
// about the process, which is a zombie or gone.
TEST(Service, StopReturnsWhenAfddHasEnded) {
    for (int i = 0; i < 3; ++i) {
        Instance instance;
        instance.wait_ready();
        const Outcome stopped = instance.afdctl({"stop"});
        std::string state;
        std::ifstream status("/proc/" + std::to_string(instance.pid()) + "/status");
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with("State:")) state = line;
        }
        EXPECT_EQ(stopped.exit_status, 0) << stopped.output;
        EXPECT_THAT(state, ::testing::AnyOf("", HasSubstr("zombie"), HasSubstr("dead")));
        EXPECT_EQ(instance.wait_exit(), 0);
    }
}

// Goal: a loop that stands still is no living service. Oracle: a stopped afdd says nothing.
TEST(Service, FeedsNoWatchdogWhileItsLoopStandsStill) {
    NotifySocket manager;
    Instance instance({}, "export NOTIFY_SOCKET=" + manager.path() + " WATCHDOG_USEC=200000");
    instance.wait_ready();
    instance.signal(SIGSTOP);
    while (!manager.next(std::chrono::milliseconds(300)).empty()) {
    }
    EXPECT_EQ(manager.next(std::chrono::milliseconds(500)), "");
    instance.signal(SIGCONT);
    EXPECT_EQ(manager.wait_for("WATCHDOG=1"), "WATCHDOG=1");
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: SIGUSR1 ends nothing and tells the state. Oracle: the status that a client gets.
TEST(Service, SaysItsStateOnSigusr1) {
    Instance instance({"--attention-workers", "1"});
    instance.wait_ready();
    ASSERT_TRUE(instance.connect().generate(long_request(3)).ok());
    instance.signal(SIGUSR1);
    instance.wait_for_log("SIGUSR1: {");
    // The line behind it shows that it is whole.
    instance.signal(SIGHUP);
    instance.wait_for_log("SIGHUP: log_level is");
    const std::string log = instance.log();
    const size_t begin = log.find("SIGUSR1: {") + 9;
    const json state = json::parse(log.substr(begin, log.find('\n', begin) - begin));
    EXPECT_EQ(state["instance"], instance.name());
    EXPECT_EQ(state["state"], "ready");
    EXPECT_EQ(state["workers"].size(), 2U);
    EXPECT_EQ(state["num_finished"], instance.status().num_finished());
    const Outcome status = instance.afdctl({"status", "--json"});
    // What both have is of the same kind: who reads one can read the other.
    const json shown = json::parse(status.output, nullptr, false);
    ASSERT_TRUE(shown.is_object()) << status.output;
    for (const auto& [name, value] : shown.items()) {
        ASSERT_TRUE(state.contains(name)) << name;
        EXPECT_EQ(state[name].is_number(), value.is_number()) << name;
    }
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
