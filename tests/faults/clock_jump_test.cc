// SPDX-License-Identifier: Apache-2.0
//
// The clock of the machine is set while requests run.
//
// Goal: nothing is timed by the wall clock: no request ends, no worker counts as stopped or hung,
// nothing waits for a moment that has moved. Method: afdd, its workers and a control run with a
// wall clock that this test moves by days, forward and back (clock_jump.cc). Oracle: the replies of
// the undisturbed instance, to the last bit; each worker is the process that it was.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <thread>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

constexpr int64_t kDaySeconds = 86'400;
constexpr uint32_t kJumpTokens = 900;
// Longer than afdd takes to look at its workers again (with stop_timeout_ms = 60000 two seconds).
constexpr std::chrono::milliseconds kBetweenLooks(2200);

class ClockJump : public testing::Test {
  protected:
    ClockJump() { jump_to(0); }

    // Written in place: programs have the file mapped.
    void jump_to(int64_t seconds) {
        std::fstream file(file_, std::ios::binary | std::ios::in | std::ios::out);
        if (!file) file.open(file_, std::ios::binary | std::ios::out);
        file.write(reinterpret_cast<const char*>(&seconds), sizeof seconds);
    }

    std::string preparation() const {
        return "export CLOCK_JUMP_FILE=" + file_ + " LD_PRELOAD=" + AFD_CLOCK_JUMP_LIBRARY;
    }

    // What a program that is prepared likewise takes for the time.
    int64_t shown_time() const {
        const Outcome outcome =
            run_program({"/bin/sh", "-c", preparation() + "; exec date +%s"}, make_directory());
        EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
        return std::atoll(outcome.output.c_str());
    }

    const std::string file_ = make_directory() + "/offset";
};

TEST_F(ClockJump, ChangesNothing) {
    Instance instance({"--attention-workers",
                       "2",
                       "--ffn-workers",
                       "2",
                       "--request-timeout-ms",
                       "60000",
                       "--stop-timeout-ms",
                       "60000"},
                      preparation());
    instance.wait_ready();
    const auto expected = instance.connect().generate(long_request(kJumpTokens));
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    const auto mixed = mixed_requests(12, 257, 5);
    const std::vector<Reply> expected_mixed = run_one_after_another(instance, mixed);
    const std::vector<pid_t> attention = instance.worker_pids("attention");
    const std::vector<pid_t> ffn = instance.worker_pids("ffn");
    for (const int64_t days : {1, -2, 0, 400}) {
        std::vector<std::unique_ptr<BackgroundGeneration>> generations;
        std::vector<BackgroundGeneration*> all;
        for (int i = 0; i < 3; ++i) {
            generations.push_back(
                std::make_unique<BackgroundGeneration>(instance, long_request(kJumpTokens)));
            all.push_back(generations.back().get());
        }
        BackgroundGeneration::disturb_amid(all, 20, [&] {
            // At least one look at the stopped ones before the jump, and one behind it.
            std::this_thread::sleep_for(kBetweenLooks);
            jump_to(days * kDaySeconds);
            std::this_thread::sleep_for(kBetweenLooks);
            EXPECT_NEAR(static_cast<double>(shown_time() - std::time(nullptr)),
                        static_cast<double>(days * kDaySeconds),
                        kDaySeconds / 2.0)
                << "the clock did not move";
        });
        for (const auto& generation : generations) {
            expect_same_generation(expected.value(), generation->finish());
        }
        const std::string what = "after a jump to " + std::to_string(days) + " days";
        expect_same_bits(expected_mixed, run_all_at_once(instance, mixed), what);
        EXPECT_EQ(instance.status().state(), "ready") << what;
    }
    EXPECT_EQ(instance.worker_pids("attention"), attention);
    EXPECT_EQ(instance.worker_pids("ffn"), ffn);
    EXPECT_EQ(instance.stop(), 0);
    // What afdd logged at its end.
    const std::time_t then = std::time(nullptr) + 400 * kDaySeconds;
    std::tm local{};
    ::localtime_r(&then, &local);
    EXPECT_THAT(instance.log(), testing::HasSubstr(fmt::format("\n{}-", 1900 + local.tm_year)))
        << "the clock of afdd did not move";
}

}  // namespace
}  // namespace afd::test
