// SPDX-License-Identifier: Apache-2.0
//
// Goal: no command of afdctl waits for an afdd that is stopped; it says so and fails.
// Method: a real afdd gets SIGSTOP while a generation streams; then other commands are tried.
// Oracle: exit status 5 (does not answer) and the words, long before the 600 s that a generation or
// a drain may take; continued, afdd serves as before.

#include <gtest/gtest.h>
#include <signal.h>

#include <future>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

class StoppedAfdd : public testing::Test {
  protected:
    void expect_given_up(const Outcome& outcome, const std::string& words) {
        EXPECT_EQ(outcome.exit_status, 5) << outcome.output;
        EXPECT_NE(outcome.output.find(words), std::string::npos)
            << "expected: " << words << "\nfound: " << outcome.output;
    }

    // A generation that streams until go_on(): its experts rest.
    std::future<Outcome> begin_and_halt() {
        for (int attempt = 0; attempt < kAttemptsToBeInTime; ++attempt) {
            const uint64_t before = instance_.status().num_output_tokens();
            auto streaming = std::async(std::launch::async, [this] {
                return instance_.afdctl(
                    {"generate", "Once upon a time", "--max-tokens", "0", "--ignore-eos"});
            });
            instance_.wait_for("the generation streams", [&](const client::Status& status) {
                return status.num_output_tokens() > before;
            });
            send_signal(ffn_, SIGSTOP);
            if (run_on(instance_, 1)) return streaming;
            go_on();
            streaming.get();
        }
        ADD_FAILURE() << "it was always over before its experts rested";
        return {};
    }
    void go_on() const { send_signal(ffn_, SIGCONT); }

    Instance instance_{patient_pair()};
    pid_t ffn_ = 0;
};

TEST_F(StoppedAfdd, IsGivenUpByAGenerationThatStreamsAndByADrain) {
    instance_.wait_ready();
    ffn_ = instance_.worker_pids("ffn").at(0);
    auto streaming = begin_and_halt();
    ASSERT_TRUE(streaming.valid());
    instance_.signal(SIGSTOP);
    expect_given_up(instance_.afdctl({"context", "--worker", "ffn0", "--timeout", "0.5"}),
                    "afdd gave no answer within 500 ms");
    expect_given_up(instance_.afdctl({"drain"}), "afdd gave no answer within 5000 ms");
    expect_given_up(streaming.get(), "afdd hangs or is stopped");

    instance_.signal(SIGCONT);
    go_on();
    // Of the drain nothing had arrived but the question before it.
    client::Generate request;
    request.set_text("It goes on");
    request.set_max_tokens(3);
    const auto generation = instance_.connect().generate(request);
    EXPECT_TRUE(generation.ok()) << generation.error().message;
}

}  // namespace
}  // namespace afd::test
