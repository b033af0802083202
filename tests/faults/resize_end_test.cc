// SPDX-License-Identifier: Apache-2.0
//
// An instance that is ended or drained while it is resized: what was accepted is finished, and
// nothing is left.

#include <signal.h>

#include <thread>

#include "tests/faults/resize_fixture.h"
#include "tests/integration/background_generation.h"

namespace afd::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(Resize, ATermMeanwhileFinishesWhatWasAcceptedAndEnds) {
    hook_.hold();
    BackgroundGeneration generation(instance_, long_request(900));
    generation.wait_for_tokens(5);
    auto outcome = resize_beside(2, 2);
    wait_for_step("workers start");
    instance_.signal(SIGTERM);
    const Outcome ended = outcome.get();
    EXPECT_EQ(ended.exit_status, 1);
    EXPECT_THAT(ended.output, HasSubstr("afdd "));
    EXPECT_TRUE(generation.finish().ok());
    EXPECT_EQ(instance_.wait_exit(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

TEST_F(Resize, ATermWhileRequestsStandStillFinishesThem) {
    hook_.hold();
    auto outcome = resize_beside(2, 2, {"--stop-first"});
    wait_for_step("workers start");
    BackgroundGeneration generation(instance_, long_request(900));
    wait_for_queued();
    instance_.signal(SIGTERM);
    instance_.wait_for("it drains",
                       [](const client::Status& status) { return status.state() == "draining"; });
    hook_.let_go();
    const auto found = generation.finish();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids.size(), 900U);
    EXPECT_EQ(instance_.wait_exit(), 0);
    outcome.get();
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// Who drains and goes on running has what it asked for, with the workers that it asked for.
TEST_F(Resize, ADrainMeanwhileEndsAndSoDoesTheResize) {
    hook_.hold();
    BackgroundGeneration generation(instance_, long_request(900));
    generation.wait_for_tokens(5);
    auto outcome = resize_beside(2, 2);
    wait_for_step("workers start");
    auto drain = std::async(std::launch::async, [this] { return instance_.afdctl({"drain"}); });
    instance_.wait_for("it drains",
                       [](const client::Status& status) { return status.state() == "draining"; });
    hook_.let_go();
    const Outcome drained = drain.get();
    EXPECT_EQ(drained.exit_status, 0) << drained.output;
    EXPECT_TRUE(generation.finish().ok());
    expect_resized(outcome.get(), 2, 2);
    EXPECT_EQ(instance_.status().state(), "draining");
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// Nothing waits for a worker that will not be there.
TEST_F(Resize, ASecondTermEndsItAtOnce) {
    hook_.hold();
    auto outcome = resize_beside(2, 2, {"--stop-first"});
    wait_for_step("workers start");
    BackgroundGeneration generation(instance_, long_request(900));
    wait_for_queued();
    instance_.signal(SIGTERM);
    instance_.wait_for("it drains",
                       [](const client::Status& status) { return status.state() == "draining"; });
    // Two at nearly the same time would count as one.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    instance_.signal(SIGTERM);
    EXPECT_EQ(instance_.wait_exit(), 6) << "a request was not finished";
    EXPECT_FALSE(generation.finish().ok());
    EXPECT_NE(outcome.get().exit_status, 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

}  // namespace
}  // namespace afd::test
