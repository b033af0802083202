// SPDX-License-Identifier: Apache-2.0
//
// Workers that are ended and replaced by command while requests run.
//
// Oracle: the same requests on the undisturbed instance, token ids and log probabilities to the
// last bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/faults/steady_load.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

using testing::HasSubstr;

constexpr uint32_t kRollingTokens = 900;

class RollingRestart : public testing::Test {
  protected:
    RollingRestart() { instance_.wait_ready(); }

    std::vector<pid_t> pids() const {
        std::vector<pid_t> all = instance_.worker_pids("attention");
        for (const pid_t pid : instance_.worker_pids("ffn")) all.push_back(pid);
        return all;
    }

    Instance instance_{
        {"--attention-workers", "2", "--ffn-workers", "2", "--stop-timeout-ms", "0"}};
};

TEST_F(RollingRestart, OfAllWorkersUnderLoadChangesNoBit) {
    const std::vector<client::Generate> requests = {long_request(kRollingTokens)};
    const std::vector<Reply> expected = run_one_after_another(instance_, requests);
    const std::vector<pid_t> before = pids();
    SteadyLoad load(instance_, requests, expected, 4);
    instance_.wait_for("all of them run",
                       [](const client::Status& status) { return status.num_running() == 4; });
    const Outcome outcome = instance_.afdctl({"restart-worker", "--all"});
    EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
    EXPECT_EQ(outcome.output,
              "ffn0 restarted\nffn1 restarted\nattention0 restarted\nattention1 restarted\n");
    load.finish();
    const std::vector<pid_t> after = pids();
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < after.size(); ++i) EXPECT_NE(after[i], before[i]) << i;
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(RollingRestart, ADrainedWorkerStaysAwayAndItsRequestsGoOnElsewhere) {
    const auto expected = instance_.connect().generate(long_request(kRollingTokens));
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    BackgroundGeneration generation(instance_, long_request(kRollingTokens));
    std::future<Outcome> drained;
    generation.disturb_amid(20, [&] {
        drained = std::async(std::launch::async, [this] {
            return instance_.afdctl({"drain-worker", "--worker", "attention0"});
        });
        // It has little time to end from now on.
        instance_.wait_for_log("attention worker 0 is to end and to stay away");
    });
    const Outcome outcome = drained.get();
    EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
    EXPECT_EQ(outcome.output, "attention0 drained\n");
    expect_same_generation(expected.value(), generation.finish());
    EXPECT_EQ(instance_.status().workers(0).state(), "halted");
    EXPECT_EQ(instance_.afdctl({"restart-worker", "--worker", "attention0"}).exit_status, 0);
    instance_.wait_for("attention worker 0 is back", [](const client::Status& status) {
        return status.workers(0).state() == "ready";
    });
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(RollingRestart, SaysWhichWorkerThereIsNot) {
    for (const char* command : {"drain-worker", "restart-worker"}) {
        const Outcome unknown = instance_.afdctl({command, "--worker", "ffn7"});
        EXPECT_NE(unknown.exit_status, 0);
        EXPECT_THAT(unknown.output, HasSubstr("ffn"));
        const Outcome none = instance_.afdctl({command, "--worker", "expert1"});
        EXPECT_EQ(none.exit_status, 2);
        EXPECT_THAT(none.output,
                    HasSubstr("--worker 'expert1' is no worker; give one as attention0 or ffn1"));
        EXPECT_THAT(instance_.afdctl({command}).output,
                    HasSubstr("which worker? give --worker ffn0, or --all"));
    }
    EXPECT_EQ(instance_.stop(), 0);
}

}  // namespace
}  // namespace afd::test
