// SPDX-License-Identifier: Apache-2.0
//
// Long prompts in two phases on the real system: what happens between the phases.
//
// Between the phases means: FFN rank 0 is stopped, rank 1 has granted and its memory exists, and
// the session waits for the memory of rank 0. So every test hits that point, whatever the speed.
// The prompt runs in session 1, because session 0 is busy; its dense layer 0 needs rank 1 only.
// Oracle: the same requests on an undisturbed system with dispatch = window, to the last bit.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <optional>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

constexpr uint32_t kPromptTokens = 500;
// Of the request beside the prompt; as long as can be, so that it still runs then.
constexpr uint32_t kOtherTokens = 900;

client::Generate long_prompt() {
    client::Generate request = long_request(30);
    for (uint32_t i = 0; i < kPromptTokens; ++i) {
        request.mutable_token_ids()->add_ids(3 + i * 7 % 200);
    }
    return request;
}

std::vector<std::string> two_phase_flags(std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {"--attention-workers",
                                      "2",
                                      "--ffn-workers",
                                      "2",
                                      "--two-phase-block",
                                      "64",
                                      "--wait-report-ms",
                                      "50",
                                      // The same prompt comes again, and must be long again.
                                      "--prefix-cache",
                                      "false"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
}

uint64_t num_two_phase_rounds(const client::Status& status) {
    uint64_t count = 0;
    for (const client::Worker& worker : status.workers()) count += worker.num_two_phase_rounds();
    return count;
}

uint64_t num_fallbacks(const client::Status& status) {
    uint64_t count = 0;
    for (const client::Worker& worker : status.workers()) {
        count += worker.num_two_phase_fallbacks();
    }
    return count;
}

struct TwoPhaseAnswers {
    client::Generation prompt;
    client::Generation other;
};

// The undisturbed results, by windows.
const TwoPhaseAnswers& undisturbed_answers() {
    static const TwoPhaseAnswers made = [] {
        Instance instance(two_phase_flags({"--dispatch", "window"}));
        instance.wait_ready();
        auto prompt = instance.connect().generate(long_prompt());
        auto other = instance.connect().generate(long_request(kOtherTokens));
        EXPECT_TRUE(prompt.ok() && other.ok());
        EXPECT_EQ(num_two_phase_rounds(instance.status()), 0U);
        return TwoPhaseAnswers{std::move(prompt).value(), std::move(other).value()};
    }();
    return made;
}

// Segments of open rounds of a rank.
size_t num_round_segments(const Instance& instance, uint32_t rank) {
    const std::string mark = "-ffn" + std::to_string(rank) + "-re";  // receive, return
    size_t count = 0;
    for (const std::string& name : instance.segments()) count += name.find(mark) != name.npos;
    return count;
}

void wait_between_the_phases(const Instance& instance) {
    instance.wait_for("session 1 waits for rank 0's memory", [&](const client::Status& status) {
        // That it waits for rank 0 is told before rank 1 has granted, too.
        return num_round_segments(instance, 1) == 2 &&
               std::any_of(status.waits().begin(), status.waits().end(), [&](const auto& wait) {
                   return wait.find("waits for the memory of a two-phase round of ffn rank 0") !=
                              std::string::npos &&
                          wait.starts_with("attention worker 1: session 1");
               });
    });
    EXPECT_EQ(num_round_segments(instance, 0), 0U);
}

void wait_memory_is_back(const Instance& instance, uint32_t rank) {
    instance.wait_for("the rounds' memory is back", [&](const client::Status&) {
        return num_round_segments(instance, rank) == 0;
    });
}

// A system whose session 1 is between the phases of a long prompt while session 0 decodes. The
// shared experts are with either side.
class BetweenThePhases : public testing::TestWithParam<const char*> {
  protected:
    explicit BetweenThePhases(const char* hang_timeout_ms = "60000")
        : instance_(two_phase_flags({"--shared-experts",
                                     GetParam(),
                                     "--hang-timeout-ms",
                                     hang_timeout_ms,
                                     "--stop-timeout-ms",
                                     "0"})) {}

    void SetUp() override {
        instance_.wait_ready();
        stopped_ffn_ = instance_.worker_pids("ffn")[0];
        other_.emplace(instance_, long_request(kOtherTokens));
        other_->stop_amid(3, stopped_ffn_);
        prompt_.emplace(instance_, long_prompt());
        wait_between_the_phases(instance_);
    }

    // The prompt, now or sent again, and the other request have their bits; all memory is back.
    void expect_nothing_lost(const Result<client::Generation>& prompt) {
        expect_same_generation(undisturbed_answers().prompt, prompt);
        expect_same_generation(undisturbed_answers().other, other_->finish());
        EXPECT_GT(num_two_phase_rounds(instance_.status()), 0U);
        for (const uint32_t rank : {0U, 1U}) wait_memory_is_back(instance_, rank);
        EXPECT_EQ(instance_.stop(), 0);
    }

    // Declared before the instance, whose end ends them.
    std::optional<BackgroundGeneration> other_;
    std::optional<BackgroundGeneration> prompt_;
    Instance instance_;
    pid_t stopped_ffn_ = 0;
};

INSTANTIATE_TEST_SUITE_P(SharedExperts,
                         BetweenThePhases,
                         testing::Values("ffn", "attention"),
                         [](const auto& side) { return std::string(side.param); });

TEST_P(BetweenThePhases, AKilledFfnWorkerComesBackAndNothingIsLost) {
    kill(stopped_ffn_, SIGKILL);
    const auto prompt = prompt_->finish();
    EXPECT_EQ(num_fallbacks(instance_.status()), 0U);
    expect_nothing_lost(prompt);
}

TEST_P(BetweenThePhases, AKilledAttentionWorkersPromptIsReplayed) {
    kill(instance_.worker_pids("attention")[1], SIGKILL);
    kill(stopped_ffn_, SIGCONT);
    expect_nothing_lost(prompt_->finish());
}

TEST_P(BetweenThePhases, ACancelledRequestsMemoryGoesBackAtOnceAndOthersGoOn) {
    prompt_->cancel();
    const auto ended = prompt_->finish();
    ASSERT_TRUE(ended.ok()) << ended.error().message;
    EXPECT_EQ(ended.value().finished.reason(), client::CANCELLED);
    EXPECT_TRUE(ended.value().token_ids.empty());
    wait_memory_is_back(instance_, 1);  // While rank 0 is still stopped.
    kill(stopped_ffn_, SIGCONT);
    expect_nothing_lost(instance_.connect().generate(long_prompt()));
}

class BetweenThePhasesForLong : public BetweenThePhases {
  protected:
    BetweenThePhasesForLong() : BetweenThePhases("8000") {}
};

INSTANTIATE_TEST_SUITE_P(SharedExperts, BetweenThePhasesForLong, testing::Values("ffn"));

TEST_P(BetweenThePhasesForLong, AStoppedFfnWorkerIsReplacedAndNothingIsLost) {
    const auto prompt = prompt_->finish();
    EXPECT_NE(instance_.worker_pids("ffn")[0], stopped_ffn_);
    EXPECT_EQ(num_fallbacks(instance_.status()), 0U);
    expect_nothing_lost(prompt);
}

// Goal: with router = ffn the session routes the rows of a long prompt and the ranks all others.
// Method: a prompt in two phases beside decoding rows; the same without memory, so that the prompt
// is given back and offered; and once more as a rank is killed. Oracle: as above.
TEST(TwoPhase, WhoeverRoutesTheOtherRowsTheBitsAreTheSame) {
    for (const bool has_memory : {true, false}) {
        Instance instance(two_phase_flags({"--router",
                                           "ffn",
                                           "--two-phase-memory-max",
                                           has_memory ? "0" : "4096",
                                           "--stop-timeout-ms",
                                           "0"}));
        instance.wait_ready();
        BackgroundGeneration other(instance, long_request(kOtherTokens));
        for (const bool is_killed : {false, true}) {
            std::optional<BackgroundGeneration> prompt;
            other.disturb_amid(3, [&] {
                prompt.emplace(instance, long_prompt());
                instance.wait_for("the prompt has come", [](const client::Status& status) {
                    return status.num_running() + status.num_queued() == 2;
                });
                if (is_killed) send_signal(instance.worker_pids("ffn")[1], SIGKILL);
            });
            expect_same_generation(undisturbed_answers().prompt, prompt->finish());
        }
        expect_same_generation(undisturbed_answers().other, other.finish());
        EXPECT_EQ(num_fallbacks(instance.status()) > 0, !has_memory);
        EXPECT_TRUE(!has_memory || num_two_phase_rounds(instance.status()) > 0);
        EXPECT_EQ(instance.stop(), 0);
    }
}

TEST(TwoPhase, WithoutMemoryThePromptGoesThroughTheWindowsWithTheSameBits) {
    Instance instance(two_phase_flags({"--two-phase-memory-max", "20000"}));
    instance.wait_ready();
    BackgroundGeneration other(instance, long_request(kOtherTokens));
    expect_same_generation(undisturbed_answers().prompt,
                           instance.connect().generate(long_prompt()));
    expect_same_generation(undisturbed_answers().other, other.finish());
    EXPECT_EQ(num_two_phase_rounds(instance.status()), 0U);
    EXPECT_EQ(num_fallbacks(instance.status()), 1U);
    for (const uint32_t rank : {0U, 1U}) wait_memory_is_back(instance, rank);
    EXPECT_NE(instance.log().find("two_phase_memory_max = 20000"), std::string::npos)
        << instance.log();
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
