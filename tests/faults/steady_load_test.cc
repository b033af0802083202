// SPDX-License-Identifier: Apache-2.0
//
// What a load says when its replies do not come.
//
// Goal: a test that fails tells why. Method: a load whose requests are refused, or stand still.
// Oracle: the failures that it reports.

#include "tests/faults/steady_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/integration/background_generation.h"

namespace afd::test {
namespace {

using testing::Each;
using testing::HasSubstr;

std::vector<std::string> failures_of(const std::function<void()>& body) {
    testing::TestPartResultArray found;
    {
        testing::ScopedFakeTestPartResultReporter reporter(
            testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &found);
        body();
    }
    std::vector<std::string> messages;
    for (int i = 0; i < found.size(); ++i) {
        messages.emplace_back(found.GetTestPartResult(i).message());
    }
    return messages;
}

TEST(SteadyLoad, SaysWhyItsRequestsAreRefused) {
    Instance instance(patient_pair());
    instance.wait_ready();
    client::Generate request = long_request(4);
    request.mutable_token_ids()->add_ids(1'000'000);
    SteadyLoad load(instance, {request}, {Reply{}}, 2);
    const auto waiting = failures_of([&] { load.wait_for_replies(1'000); });
    ASSERT_EQ(waiting.size(), 1U);
    EXPECT_THAT(waiting[0], HasSubstr("request 0: "));
    EXPECT_THAT(waiting[0], HasSubstr("1000000"));
    const auto ending = failures_of([&] { load.finish(); });
    EXPECT_EQ(ending.size(), 2U);
    EXPECT_THAT(ending, Each(HasSubstr("1000000")));
    EXPECT_EQ(instance.stop(), 0);
}

TEST(SteadyLoad, SaysWhoStandsStill) {
    Instance instance(patient_pair({"--wait-report-ms", "50"}));
    instance.wait_ready();
    const std::vector<client::Generate> requests = {long_request(40)};
    SteadyLoad load(instance, requests, run_one_after_another(instance, requests), 2);
    const pid_t ffn = instance.worker_pids("ffn").at(0);
    send_signal(ffn, SIGSTOP);
    instance.wait_for("the stop is noticed", [](const client::Status& status) {
        return !status.waits().empty() && status.workers(1).state() == "stopped";
    });
    const auto found =
        failures_of([&] { load.wait_for_replies(1'000, std::chrono::milliseconds(500)); });
    send_signal(ffn, SIGCONT);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_THAT(found[0], HasSubstr(" replies came"));
    EXPECT_THAT(found[0], HasSubstr("ready (), "));
    EXPECT_THAT(found[0], HasSubstr("waits for results of ffn rank 0"));
    EXPECT_THAT(found[0], HasSubstr("ffn0 stopped: pid " + std::to_string(ffn) + ", "));
    EXPECT_THAT(found[0], HasSubstr(") T in "));
    EXPECT_GT(load.finish(), 0U);
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
