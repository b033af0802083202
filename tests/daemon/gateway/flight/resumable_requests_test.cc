// SPDX-License-Identifier: Apache-2.0
//
// Requests that outlive their connection. Goal: a Resume goes on exactly where its client was.
// Method: sessions in memory that are closed at chosen places, scripted workers. Oracle: what the
// clients have read together, and what the workers were told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/gateway/resumable_requests_fixture.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ResumableRequestsTest, GoesOnWhereTheClientWasAndSaysTheEndOnce) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 6);
    const std::string name = resume_id(first, 1);
    EXPECT_EQ(name.size(), 32U);
    say(id, "ab");
    first.close();
    say(id, "cd");
    EXPECT_FALSE(instance_.has_next()) << "the worker goes on";
    EXPECT_EQ(gateway_->status().num_detached(), 1U);
    MemorySession& second = open();
    resume(second, 7, name, 1);
    ASSERT_FALSE(second.answers.empty());
    const client::Accepted& accepted = second.answers.front().accepted();
    EXPECT_EQ(accepted.seed(), 3U);
    EXPECT_EQ(accepted.num_received_tokens(), 1U);
    EXPECT_EQ(accepted.num_answers(), 4U);
    EXPECT_EQ(second.text(7), "bcd");
    EXPECT_EQ(gateway_->status().num_detached(), 0U);
    say(id, "ef");
    end(id);
    EXPECT_EQ(second.text(7), "bcdef");
    EXPECT_EQ(second.last(7)->finished().num_output_tokens(), 6U);
    EXPECT_EQ(std::count_if(second.answers.begin(),
                            second.answers.end(),
                            [](const auto& answer) { return answer.has_finished(); }),
              1);
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
}

TEST_F(ResumableRequestsTest, WithoutTheWishADisconnectCancels) {
    MemorySession& client = open();
    const uint64_t id = start(client, 1, 6, 0);
    EXPECT_EQ(resume_id(client, 1), "");
    client.close();
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
}

TEST_F(ResumableRequestsTest, AnInstanceThatKeepsNothingSaysSo) {
    config_.resume_grace_ms = 0;
    MemorySession& client = open();
    client::Request request = generate(1, "abc", 5);
    request.mutable_generate()->set_resumable_ms(5);
    client.ask(request);
    EXPECT_EQ(error_code(client, 1), code(Code::kInvalidArgument));
    EXPECT_THAT(client.last(1)->error().message(), HasSubstr("resume_grace_ms = 0"));
}

TEST_F(ResumableRequestsTest, AFinishedOneIsThereUntilItsTimeIsOver) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 2, 400);
    const std::string name = resume_id(first, 1);
    say(id, "xy");
    end(id);
    first.close();
    MemorySession& second = open();
    resume(second, 1, name, 2);
    EXPECT_EQ(second.text(1), "");
    EXPECT_EQ(second.last(1)->finished().reason(), client::LENGTH);
    resume(second, 2, name, 0);
    EXPECT_EQ(second.text(2), "xy");
    ASSERT_TRUE(run_until(loop_, [&] { return gateway_->status().num_detached() == 0; }));
    EXPECT_EQ(gateway_->status().kept_bytes(), 0U);
    resume(second, 3, name, 0);
    EXPECT_EQ(error_code(second, 3), code(Code::kNotFound));
}

TEST_F(ResumableRequestsTest, WhatNobodyResumesInTimeIsCancelled) {
    MemorySession& client = open();
    const uint64_t id = start(client, 1, 100, 300);
    const std::string name = resume_id(client, 1);
    say(id, "ab");
    client.close();
    EXPECT_FALSE(instance_.has_next());
    ASSERT_TRUE(run_until(loop_, [&] { return instance_.has_next(); }));
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
    MemorySession& late = open();
    resume(late, 1, name, 0);
    EXPECT_EQ(error_code(late, 1), code(Code::kNotFound));
    say(id, "c");
    end(id, Code::kCancelled);
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
    EXPECT_EQ(gateway_->status().kept_bytes(), 0U);
}

TEST_F(ResumableRequestsTest, TheTimeOfTheInstanceBoundsThatOfTheRequest) {
    config_.resume_grace_ms = 200;
    MemorySession& client = open();
    start(client, 1, 100, 3'600'000);
    client.close();
    EXPECT_TRUE(run_until(loop_, [&] { return instance_.next().second.has_cancel(); }));
}

TEST_F(ResumableRequestsTest, ALivingConnectionLosesItToTheOneThatResumes) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 4);
    say(id, "ab");
    MemorySession& second = open();
    resume(second, 9, resume_id(first, 1), 2);
    EXPECT_EQ(error_code(first, 1), code(Code::kAlreadyExists));
    EXPECT_THAT(first.last(1)->error().message(), HasSubstr("another connection"));
    say(id, "cd");
    end(id);
    EXPECT_EQ(first.text(1), "ab");
    EXPECT_EQ(second.text(9), "cd");
    EXPECT_TRUE(second.last(9)->has_finished());
    first.close();
    EXPECT_FALSE(instance_.has_next());
}

TEST_F(ResumableRequestsTest, AnotherAccountFindsNothing) {
    MemorySession& first = open("one");
    start(first, 1, 4);
    MemorySession& other = open("other");
    resume(other, 1, resume_id(first, 1), 0);
    EXPECT_EQ(error_code(other, 1), code(Code::kNotFound));
    resume(other, 2, "no such id", 0);
    EXPECT_EQ(error_code(other, 2), code(Code::kNotFound));
    EXPECT_EQ(error_code(first, 1), 0U);
}

TEST_F(ResumableRequestsTest, APlaceThatIsNotThereIsRefusedAndTakesNothingAway) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 4);
    say(id, "ab");
    MemorySession& second = open();
    resume(second, 1, resume_id(first, 1), 3);
    EXPECT_EQ(error_code(second, 1), code(Code::kInvalidArgument));
    EXPECT_THAT(second.last(1)->error().message(), HasSubstr("received_chunks = 3"));
    say(id, "c");
    EXPECT_EQ(first.text(1), "abc");
}

TEST_F(ResumableRequestsTest, WhileItWaitsInTheQueueItKeepsItsPlaceAndCountsForItsUser) {
    config_.connection_requests_max = 1;
    gateway_->on_attention_gone(0, {});
    MemorySession& first = open();
    client::Request request = generate(1, "abc", 9);
    request.mutable_generate()->set_resumable_ms(60'000);
    first.ask(request);
    const std::string name = resume_id(first, 1);
    first.close();
    EXPECT_EQ(gateway_->status().num_queued(), 1U);
    MemorySession& second = open();
    second.ask(request);
    EXPECT_EQ(error_code(second, 1), code(Code::kResourceExhausted));
    MemorySession& other = open("other");
    other.ask(generate(1, "xyz", 9));
    resume(second, 2, name, 0);
    gateway_->on_attention_ready(0, 1 << 20);
    const uint64_t id = instance_.next().second.admit().sequence_id();
    EXPECT_THAT(instance_.next().second.admit().tokens(), ElementsAre('x', 'y', 'z'));
    say(id, "q");
    EXPECT_EQ(second.text(2) + other.text(1), "q");
}

TEST_F(ResumableRequestsTest, ADeadWorkersReplayGoesOnBehindWhatWasKept) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 4);
    say(id, "ab");
    first.close();
    gateway_->on_attention_gone(0, {});
    gateway_->on_attention_ready(0, 1 << 20);
    EXPECT_THAT(instance_.next().second.admit().tokens(), ElementsAre('a', 'b', 'c', 'a', 'b'));
    say(id, "cd");
    end(id);
    MemorySession& second = open();
    resume(second, 1, resume_id(first, 1), 0);
    EXPECT_EQ(second.text(1), "abcd");
    EXPECT_TRUE(second.last(1)->has_finished());
}

TEST_F(ResumableRequestsTest, CancelReachesItThroughEitherConnectionAndIsNotKept) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 4);
    const std::string name = resume_id(first, 1);
    first.close();
    MemorySession& second = open();
    resume(second, 1, name, 0);
    client::Request request;
    request.set_request_id(2);
    request.mutable_cancel()->set_target(1);
    second.ask(request);
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
    end(id, Code::kCancelled);
    EXPECT_EQ(second.last(1)->finished().reason(), client::CANCELLED);
    ASSERT_TRUE(run_until(loop_, [&] { return gateway_->status().num_detached() == 0; }));
    resume(second, 3, name, 0);
    EXPECT_EQ(error_code(second, 3), code(Code::kNotFound));
}

// What an ordinary request does whose client leaves while the worker still has to let go of it.
TEST_F(ResumableRequestsTest, ACancelledOneIsNotKeptWhenItsConnectionBreaks) {
    MemorySession& client = open();
    const uint64_t id = start(client, 1, 4);
    client::Request request;
    request.set_request_id(2);
    request.mutable_cancel()->set_target(1);
    client.ask(request);
    client.close();
    end(id, Code::kCancelled);
    EXPECT_EQ(gateway_->num_in_flight(), 0U);
    EXPECT_EQ(gateway_->status().num_detached(), 0U);
}

TEST_F(ResumableRequestsTest, ABrokenResumeIsResumed) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 100'000);
    const std::string name = resume_id(first, 1);
    first.close();
    say(id, std::string(1000, 'm'));
    MemorySession& second = open();
    second.read(0);
    resume(second, 1, name, 0);
    say(id, "n");
    second.close();
    EXPECT_EQ(gateway_->status().num_detached(), 1U);
    say(id, "o");
    MemorySession& third = open();
    resume(third, 1, name, 900);
    EXPECT_EQ(third.text(1), std::string(100, 'm') + "no");
}

// A drain waits for those that are kept for a client, as it does for one that reads slowly.
TEST_F(ResumableRequestsTest, ADrainEndsWhenADetachedOneWasHeardOrItsTimeIsOver) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 2);
    const std::string name = resume_id(first, 1);
    const uint64_t lost = start(first, 2, 2, 300);
    first.close();
    gateway_->drain();
    say(id, "xy");
    end(id);
    say(lost, "xy");
    end(lost);
    EXPECT_EQ(instance_.num_drains, 0);
    MemorySession& second = open();
    resume(second, 1, name, 0);
    EXPECT_EQ(second.text(1), "xy");
    EXPECT_TRUE(run_until(loop_, [&] { return instance_.num_drains == 1; }));
}

}  // namespace
}  // namespace afd::daemon
