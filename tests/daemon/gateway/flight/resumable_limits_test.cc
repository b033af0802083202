// SPDX-License-Identifier: Apache-2.0
//
// What is kept of requests that outlive their connection. Goal: it is bounded, for each request and
// for all together, in bytes, number and time. Method and oracle: as resumable_requests_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/gateway/resumable_requests_fixture.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

class ResumableLimitsTest : public ResumableRequestsTest {
  protected:
    struct Late {
        MemorySession& session;
        uint64_t id;  // The worker's.
    };

    // Asks with request_id 1 and goes; half of missed_ comes before that and half after it, in all
    // more than the half of output_buffer_kib. Then another session takes 2000 bytes of it, as
    // request `request_id`.
    Late resume_late(const client::Request& request, uint64_t request_id) {
        MemorySession& first = open();
        first.ask(request);
        const uint64_t id = instance_.next().second.admit().sequence_id();
        say(id, missed_.substr(0, missed_.size() / 2));
        first.close();
        say(id, missed_.substr(missed_.size() / 2));
        MemorySession& second = open();
        second.read(2000);
        resume(second, request_id, resume_id(first, 1), 0);
        return {second, id};
    }

    const std::string missed_ = std::string(2200, 'm');
};

TEST_F(ResumableLimitsTest, OutputBeyondWhatIsKeptEndsADetachedRequestWithAnError) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 100'000);
    say(id, "a");
    first.close();
    while (!instance_.has_next()) say(id, "b");
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), id);
    end(id, Code::kCancelled);
    MemorySession& second = open();
    resume(second, 1, resume_id(first, 1), 0);
    EXPECT_THAT(second.text(1), testing::StartsWith("abbb"));
    EXPECT_EQ(error_code(second, 1), code(Code::kResourceExhausted));
    EXPECT_EQ(gateway_->num_failed(), 1U);
}

// While a client reads there is nothing to end: the oldest go.
TEST_F(ResumableLimitsTest, AConnectedOneKeepsTheNewest) {
    MemorySession& first = open();
    const uint64_t id = start(first, 1, 100'000);
    say(id, std::string(4000, 'a'));
    EXPECT_LE(gateway_->status().kept_bytes(), 64U * 1024);
    MemorySession& second = open();
    resume(second, 1, resume_id(first, 1), 0);
    EXPECT_EQ(error_code(second, 1), code(Code::kInvalidArgument));
    EXPECT_THAT(second.last(1)->error().message(), HasSubstr("kept no longer"));
    resume(second, 2, resume_id(first, 1), 3990);
    say(id, "b");
    EXPECT_EQ(second.text(2), std::string(10, 'a') + "b");
}

// Goal: to catch up with much, slowly, is not to read too slowly. Method: more than half of
// output_buffer_kib was missed, and the client takes it in parts while tokens go on coming.
TEST_F(ResumableLimitsTest, AClientThatCatchesUpSlowlyLosesNothing) {
    const auto [second, id] = resume_late(wordy(1), 1);
    std::string text = missed_;
    EXPECT_LE(second.queued_bytes(), 33U * 1024);
    for (int i = 0; i < 100; ++i) {
        say(id, "n");
        text += 'n';
        second.read(200);
    }
    second.read(MemorySession::kReadsAll);
    EXPECT_TRUE(second.text(1) == text);
    say(id, "o");
    EXPECT_TRUE(second.text(1) == text + "o");
    EXPECT_FALSE(instance_.has_next());
}

// The name of what is still being told is taken.
TEST_F(ResumableLimitsTest, NobodyBeginsAnotherUnderTheNameOfWhatHeIsTold) {
    MemorySession& second = resume_late(wordy(1), 5).session;
    second.ask(generate(5, "abc", 10));
    EXPECT_FALSE(instance_.has_next());
    second.read(MemorySession::kReadsAll);
    const auto is_refusal = [](const client::Response& answer) {
        return answer.error().message().find("request_id 5 is in flight") != std::string::npos;
    };
    EXPECT_TRUE(std::ranges::any_of(second.answers, is_refusal));
}

// Goal: one who comes for a finished request and does not read keeps it no longer than one who does
// not come: an afdd that is replaced would wait for him for ever. Oracle: what is kept, and the
// error behind what he has.
TEST_F(ResumableLimitsTest, WhoResumesAndReadsNothingIsNotWaitedForForEver) {
    client::Request request = wordy(1);
    request.mutable_generate()->set_resumable_ms(50);
    const auto [second, id] = resume_late(request, 1);
    end(id);
    ASSERT_GT(gateway_->status().kept_bytes(), 0U);
    ASSERT_TRUE(run_until(loop_, [&] { return gateway_->status().kept_bytes() == 0; }));
    EXPECT_TRUE(gateway_->remaining().stream_ids().empty());
    second.read(MemorySession::kReadsAll);
    EXPECT_EQ(error_code(second, 1), code(Code::kResourceExhausted));
    EXPECT_THAT(second.last(1)->error().message(), HasSubstr("nothing of it was read"));
}

// Goal: who leaves requests behind keeps nobody of his account from asking, and leaves no more than
// one connection may have.
TEST_F(ResumableLimitsTest, ThoseLeftBehindCountAgainstFurtherOnesOfTheirKind) {
    config_.connection_requests_max = 1;
    MemorySession& first = open();
    start(first, 1, 9);
    first.close();
    MemorySession& second = open();
    start(second, 1, 9, 0);
    client::Request request = generate(1, "abc", 9);
    request.mutable_generate()->set_resumable_ms(60'000);
    MemorySession& third = open();
    third.ask(request);
    EXPECT_EQ(error_code(third, 1), code(Code::kResourceExhausted));
    EXPECT_THAT(third.last(1)->error().message(),
                HasSubstr("1 requests of this connection and of those of its user that broke"));
    MemorySession& other = open("other");
    other.ask(request);
    EXPECT_TRUE(other.last(1)->has_accepted());
}

TEST_F(ResumableLimitsTest, OfTooManyTheFinishedGoFirstAndThenTheLast) {
    config_.detached_requests_max = 2;
    std::vector<std::string> names;
    std::vector<uint64_t> ids;
    for (int i = 0; i < 4; ++i) {
        MemorySession& client = open();
        ids.push_back(start(client, 1, 2));
        names.push_back(resume_id(client, 1));
        if (i == 0) {
            say(ids[0], "xy");
            end(ids[0]);
        }
        client.close();
        run_for(loop_, 10, [] { return false; });
    }
    EXPECT_EQ(gateway_->status().num_detached(), 2U);
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), ids[3]);
    EXPECT_FALSE(instance_.has_next());
    MemorySession& client = open();
    const std::vector<uint32_t> expected = {code(Code::kNotFound), 0, 0, code(Code::kNotFound)};
    for (size_t i = 0; i < names.size(); ++i) {
        resume(client, 10 + i, names[i], 0);
        EXPECT_EQ(error_code(client, 10 + i), expected[i]) << i;
    }
}

// The same of so many at once that to sort them takes more than to compare neighbours.
TEST_F(ResumableLimitsTest, OfManyTooManyTheFinishedGoFirstAndThenTheLast) {
    constexpr size_t kFinished = 16;
    constexpr size_t kAll = kFinished + 8;
    config_.detached_requests_max = kAll;
    std::vector<std::string> names;
    for (size_t i = 0; i < kAll; ++i) {
        MemorySession& client = open();
        const uint64_t id = start(client, 1, 2);
        names.push_back(resume_id(client, 1));
        if (i < kFinished) {
            say(id, "xy");
            end(id);
        }
        client.close();
    }
    EXPECT_EQ(gateway_->status().num_detached(), kAll);
    config_.detached_requests_max = 3;
    ASSERT_TRUE(run_until(loop_, [&] { return gateway_->status().num_detached() == 3; }));
    const auto left = gateway_->remaining().stream_ids();
    EXPECT_THAT(std::vector<std::string>(left.begin(), left.end()),
                testing::UnorderedElementsAre(
                    names[kFinished], names[kFinished + 1], names[kFinished + 2]));
}

TEST_F(ResumableLimitsTest, IfAllTogetherAreTooLargeTheLargestGoes) {
    config_.resume_buffer_kib = 64;
    MemorySession& large = open();
    const uint64_t large_id = start(large, 1, 100'000);
    MemorySession& small = open();
    const uint64_t small_id = start(small, 1, 100'000);
    say(small_id, std::string(400, 's'));
    small.close();
    say(large_id, std::string(1600, 'l'));
    EXPECT_LE(gateway_->status().kept_bytes(), 64U * 1024);
    EXPECT_FALSE(instance_.has_next()) << "the large one has its client";
    say(large_id, "m");
    EXPECT_EQ(large.text(1), std::string(1600, 'l') + "m");
    MemorySession& client = open();
    resume(client, 1, resume_id(large, 1), 0);
    EXPECT_EQ(error_code(client, 1), code(Code::kNotFound));
    resume(client, 2, resume_id(small, 1), 0);
    EXPECT_EQ(client.text(2), std::string(400, 's'));
    large.close();
    EXPECT_EQ(instance_.next().second.cancel().sequence_id(), large_id);
}

TEST_F(ResumableLimitsTest, ADeadlineHoldsWhileNobodyIsThere) {
    MemorySession& first = open();
    client::Request request = generate(1, "abc", 100);
    request.mutable_generate()->set_resumable_ms(60'000);
    request.mutable_generate()->set_timeout_ms(200);
    first.ask(request);
    const uint64_t id = instance_.next().second.admit().sequence_id();
    const std::string name = resume_id(first, 1);
    first.close();
    ASSERT_TRUE(run_until(loop_, [&] { return instance_.has_next(); }));
    end(id, Code::kCancelled);
    MemorySession& second = open();
    resume(second, 1, name, 0);
    EXPECT_EQ(error_code(second, 1), code(Code::kDeadlineExceeded));
}

}  // namespace
}  // namespace afd::daemon
