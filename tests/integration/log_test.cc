// SPDX-License-Identifier: Apache-2.0
//
// What stands in the log of an instance.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/integration/background_generation.h"

namespace afd::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// Goal: in JSON a program finds every line of a request by its number. Oracle: the lines of a
// request whose worker is killed: accepted, placed, begun again, finished.
TEST(Log, EveryJsonLineOfARequestHasItsNumber) {
    Instance instance({"--log-format", "json", "--log-level", "debug"});
    instance.wait_ready();
    const pid_t attention = instance.worker_pids("attention").at(0);
    const pid_t ffn = instance.worker_pids("ffn").at(0);
    // Stopped, so that the request outlasts the kill.
    send_signal(ffn, SIGSTOP);
    BackgroundGeneration background(instance, long_request(900));
    instance.wait_for("the request runs",
                      [](const client::Status& status) { return status.num_running() == 1; });
    send_signal(attention, SIGKILL);
    send_signal(ffn, SIGCONT);
    ASSERT_TRUE(background.finish().ok());
    EXPECT_EQ(instance.stop(), 0);
    std::vector<std::string> told;
    std::istringstream lines(instance.log());
    for (std::string text; std::getline(lines, text);) {
        if (!text.starts_with("{")) continue;
        const json line = json::parse(text, nullptr, false);
        ASSERT_FALSE(line.is_discarded()) << text;
        const std::string message = line["message"];
        EXPECT_THAT(message, Not(::testing::StartsWith("request ")));
        if (line.value("request", 0) == 1) told.push_back(message);
    }
    ASSERT_EQ(told.size(), 5u) << instance.log();
    EXPECT_THAT(told[0], ::testing::StartsWith("accepted from "));
    EXPECT_THAT(told[1], HasSubstr("goes to attention worker 0"));
    EXPECT_THAT(told[2], HasSubstr("will run again, behind "));
    EXPECT_THAT(told[3], HasSubstr("goes to attention worker 0"));
    EXPECT_THAT(told[4], HasSubstr("finished after "));
}

// Goal: under load a line every ten seconds, and none when nothing runs.
TEST(Log, HasAHeartbeatWhileRequestsRunAndNoneWhenIdle) {
    Instance instance;
    instance.wait_ready();
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (instance.log().find(" tok/s | ") == std::string::npos &&
           std::chrono::steady_clock::now() < deadline) {
        ASSERT_TRUE(instance.connect().generate(long_request(900)).ok());
    }
    EXPECT_THAT(instance.log(), HasSubstr("| attention busy "));
    EXPECT_THAT(instance.log(), HasSubstr("| ffn busy "));
    // What came after the line's period began is said once more; then there is silence.
    std::this_thread::sleep_for(std::chrono::seconds(14));
    const std::string log = instance.log();
    std::this_thread::sleep_for(std::chrono::seconds(14));
    EXPECT_EQ(instance.log(), log);
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
