// SPDX-License-Identifier: Apache-2.0
//
// Goal: no command of afdctl waits for an afdd that is stopped; it says so and fails.
// Method: a real afdd gets SIGSTOP while a generation streams; then other commands are tried.
// Oracle: exit status 5 (does not answer) and the words, long before the 600 s that a generation or
// a drain may take; continued, afdd serves as before.

#include <gtest/gtest.h>
#include <signal.h>

#include <future>

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

    // Slow, so that the generation still streams when afdd is stopped.
    Instance instance_{{"--numeric-class", "portable"}};
};

TEST_F(StoppedAfdd, IsGivenUpByAGenerationThatStreamsAndByADrain) {
    instance_.wait_ready();
    auto streaming = std::async(std::launch::async, [this] {
        return instance_.afdctl(
            {"generate", "Once upon a time", "--max-tokens", "0", "--ignore-eos"});
    });
    instance_.wait_for("the generation streams",
                       [](const client::Status& status) { return status.num_output_tokens() > 0; });
    instance_.signal(SIGSTOP);
    expect_given_up(instance_.afdctl({"context", "--worker", "ffn0", "--timeout", "0.5"}),
                    "afdd gave no answer within 500 ms");
    expect_given_up(instance_.afdctl({"drain"}), "afdd gave no answer within 5000 ms");
    expect_given_up(streaming.get(), "afdd hangs or is stopped");

    instance_.signal(SIGCONT);
    // Of the drain nothing had arrived but the question before it.
    client::Generate request;
    request.set_text("It goes on");
    request.set_max_tokens(3);
    const auto generation = instance_.connect().generate(request);
    EXPECT_TRUE(generation.ok()) << generation.error().message;
}

}  // namespace
}  // namespace afd::test
