// SPDX-License-Identifier: Apache-2.0
//
// An FFN worker that is lost and does not come back, while another has all of its experts (R12).
//
// Method: a dead worker is started again after an hour, so that whatever goes on goes on without
// it. Oracle: the replies of the undisturbed instance, token ids and log probabilities to the last
// bit.

#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

constexpr uint32_t kLongTokens = 900;

struct LostWorkerCase {
    const char* name;
    std::vector<std::string> flags;
};

class LostWorker : public testing::TestWithParam<LostWorkerCase> {
  protected:
    LostWorker() : instance_(flags()) { instance_.wait_ready(); }

    static std::vector<std::string> flags() {
        std::vector<std::string> all = {"--attention-workers",
                                        "2",
                                        "--ffn-workers",
                                        "2",
                                        "--micro-batches",
                                        "2",
                                        "--expert-placement",
                                        "replicas:2",
                                        "--two-phase-block",
                                        "64",
                                        "--prefix-cache",
                                        "false",
                                        "--restart-first-ms",
                                        "3600000",
                                        "--restart-max-ms",
                                        "3600000",
                                        "--stop-timeout-ms",
                                        "0"};
        all.insert(all.end(), GetParam().flags.begin(), GetParam().flags.end());
        return all;
    }

    // Begins `count` requests and kills workers amid all of them.
    void begin_and_kill(size_t count, const std::vector<pid_t>& killed) {
        std::vector<BackgroundGeneration*> all;
        for (size_t i = 0; i < count; ++i) {
            generations_.push_back(
                std::make_unique<BackgroundGeneration>(instance_, long_request(kLongTokens)));
            all.push_back(generations_.back().get());
        }
        BackgroundGeneration::disturb_amid(all, 20, [&] {
            for (const pid_t pid : killed) send_signal(pid, SIGKILL);
        });
    }

    void expect_all(const client::Generation& expected) {
        for (const auto& generation : std::exchange(generations_, {})) {
            expect_same_generation(expected, generation->finish());
        }
    }

    void wait_for_end_of_ffn(size_t rank) const {
        instance_.wait_for("its end is seen", [&](const client::Status& status) {
            return status.workers(static_cast<int>(2 + rank)).state() == "back-off";
        });
    }

    void bring_back(const std::string& worker) {
        const Outcome outcome = instance_.afdctl({"restart-worker", "--worker", worker});
        EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
    }

    // Declared before the instance, whose end ends them.
    std::vector<std::unique_ptr<BackgroundGeneration>> generations_;
    Instance instance_;
};

std::vector<LostWorkerCase> modes() {
    std::vector<LostWorkerCase> made = {{"auto", {"--dispatch", "auto"}},
                                        {"window", {"--dispatch", "window"}},
                                        {"sync", {"--dispatch-mode", "sync"}},
                                        {"routers_at_the_experts", {"--router", "ffn"}}};
#ifdef AFD_HAS_UCX
    const std::vector<std::string> over_ucx = {"--transport", "ucx", "--ucx-devices", "lo"};
    made.push_back({"over_ucx", over_ucx});
    made.push_back({"over_ucx_routers_at_the_experts", over_ucx});
    made.back().flags.insert(made.back().flags.end(), {"--router", "ffn"});
    made.push_back({"over_tcp", over_ucx});
    made.back().flags.insert(made.back().flags.end(), {"--ucx-neighbours", "ucx"});
#endif
    return made;
}

INSTANTIATE_TEST_SUITE_P(Modes, LostWorker, testing::ValuesIn(modes()), [](const auto& one) {
    return one.param.name;
});

// Both sessions use both ranks in turn; whichever is lost, and whoever had rows there.
TEST_P(LostWorker, HoldsNobodyUpWhoseExpertsAreElsewhere) {
    const auto expected = instance_.connect().generate(long_request(kLongTokens));
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    const auto mixed = mixed_requests(12, 257, 5);
    const std::vector<Reply> expected_mixed = run_one_after_another(instance_, mixed);
    for (const size_t rank : {size_t{0}, size_t{1}}) {
        begin_and_kill(3, {instance_.worker_pids("ffn").at(rank)});
        wait_for_end_of_ffn(rank);
        expect_all(expected.value());
        const std::string what = "without ffn " + std::to_string(rank);
        expect_same_bits(expected_mixed, run_all_at_once(instance_, mixed), what);
        EXPECT_EQ(instance_.status().workers(static_cast<int>(2 + rank)).state(), "back-off");
        bring_back("ffn" + std::to_string(rank));
        expect_same_bits(expected_mixed, run_all_at_once(instance_, mixed), "after " + what);
    }
    EXPECT_EQ(instance_.stop(), 0);
}

// A new attention worker hears at its start whom it has to do without, and has the rounds of its
// predecessor voided that the lost rank will not acknowledge.
TEST_P(LostWorker, IsNotAwaitedByANewAttentionWorker) {
    const auto expected = instance_.connect().generate(long_request(kLongTokens));
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    std::vector<pid_t> killed = instance_.worker_pids("attention");
    killed.push_back(instance_.worker_pids("ffn").at(0));
    begin_and_kill(4, killed);
    instance_.wait_for("the ends are seen", [](const client::Status& status) {
        return status.workers(0).state() == "back-off" && status.workers(1).state() == "back-off" &&
               status.workers(2).state() == "back-off";
    });
    bring_back("attention0");
    bring_back("attention1");
    expect_all(expected.value());
    EXPECT_EQ(instance_.status().workers(2).state(), "back-off");
    EXPECT_EQ(instance_.stop(), 0);
}

}  // namespace
}  // namespace afd::test
