// SPDX-License-Identifier: Apache-2.0
//
// Goal: afd-load tells the truth. Method: the mock answers with scripted delays, stalls, errors
// and deaths. Oracle: a request cannot be faster than its script, so the scripted times are lower
// bounds; counts are exact. Upper bounds are none, as a test machine may be busy, except where a
// stall of a second must not show.
#include "clients/load/level_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "clients/load/socket_door.h"
#include "tests/clients/mock_afdd.h"

namespace afd::client {
namespace {

using afd::test::MockAfdd;
using afd::test::MockAnswer;
using afd::test::steady_answer;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

class LevelRunTest : public ::testing::Test {
  protected:
    LevelRunTest() : cancellation_(Cancellation::create().value()) {
        workload_.prompts = {"a", "b", "c"};
        workload_.seed = 5;
    }

    void start(MockAfdd::Plan plan) {
        server_ = std::make_unique<MockAfdd>(std::move(plan));
        Result<Connection> connection =
            Connection::connect({server_->socket_path(), ""}, Clock::now() + milliseconds(5000));
        ASSERT_TRUE(connection.ok()) << connection.error().message;
        door_.emplace(std::move(connection).value());
    }

    LevelResult run(const Level& level,
                    uint64_t num_requests,
                    milliseconds timeout = milliseconds(60'000),
                    const LevelObserver& observer = nullptr) {
        LevelExtent extent;
        extent.num_requests = num_requests;
        LevelRun level_run(*door_, workload_, level, extent, timeout);
        return level_run.run(next_request_id_, cancellation_, observer);
    }

    Workload workload_;
    Cancellation cancellation_;
    std::unique_ptr<MockAfdd> server_;
    std::optional<SocketDoor> door_;
    uint64_t next_request_id_ = 1;
};

const Level kOneInFlight = {1, 0};

TEST_F(LevelRunTest, MeasuresFirstTokenGapsAndEnd) {
    start([](size_t, const Generate&) {
        return steady_answer(5, milliseconds(40), milliseconds(10));
    });
    const LevelResult result = run(kOneInFlight, 6);
    EXPECT_EQ(result.num_with(Outcome::kOk), 6u);
    EXPECT_EQ(result.num_output_tokens(), 30u);
    EXPECT_EQ(result.ttft_us.count(), 6u);
    EXPECT_GE(result.ttft_us.min(), 40'000);
    EXPECT_EQ(result.e2e_us.count(), 6u);
    EXPECT_GE(result.e2e_us.min(), 80'000);
    EXPECT_EQ(result.itl_us.count(), 24u);
    EXPECT_GE(result.elapsed_us, 6 * 80'000);
    for (const RequestRecord& request : result.requests) {
        EXPECT_EQ(request.intended_us, request.sent_us);
        EXPECT_EQ(request.num_prompt_tokens, 3u);
        EXPECT_EQ(request.num_chunks, 5u);
    }
    // The gaps of a request add up to the time between its first and last chunk; Finished comes
    // with the last one or later.
    double sum_us = 0;
    for (const RequestRecord& request : result.requests) {
        sum_us += static_cast<double>(request.end_us - request.first_token_us);
    }
    EXPECT_LE(result.itl_us.mean() * 24, sum_us);
    EXPECT_GT(result.itl_us.mean() * 24, 0);
    EXPECT_NEAR(
        result.output_tokens_per_s(), 30 * 1e6 / static_cast<double>(result.elapsed_us), 1e-6);
}

TEST_F(LevelRunTest, StallBetweenTokensShowsInItsPercentileOnly) {
    // One gap of a second among 50: the 99th percentile has it, the median has not.
    start([](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(11, milliseconds(1), milliseconds(1));
        if (index == 2) answer.chunks[5].after = milliseconds(1000);
        return answer;
    });
    const LevelResult result = run(kOneInFlight, 5);
    EXPECT_EQ(result.itl_us.count(), 50u);
    EXPECT_GE(result.itl_us.value_at(99), 500'000);
    EXPECT_LT(result.itl_us.value_at(50), 500'000);
    EXPECT_GE(result.e2e_us.value_at(99), 1'000'000);
    EXPECT_LT(result.ttft_us.value_at(50), 500'000);
}

TEST_F(LevelRunTest, ChunksOfSeveralTokensCountOneGapAndZeros) {
    // Five chunks of four tokens: 19 gaps, of which 4 are real and 15 zero; spread, the 3 tokens
    // that come with the first keep zeros and 16 share the real ones.
    start([](size_t, const Generate&) {
        MockAnswer answer = steady_answer(5, milliseconds(5), milliseconds(200));
        for (auto& chunk : answer.chunks) chunk.num_tokens = 4;
        return answer;
    });
    // Two that come late are read at once, and have no gap: such a run says nothing.
    constexpr int kTriesMax = 20;
    LevelResult result = run(kOneInFlight, 1);
    for (int i = 1; i < kTriesMax && result.num_with(Outcome::kOk) == 1 &&
                    result.itl_us.buckets().front().second != 15;
         ++i) {
        result = run(kOneInFlight, 1);
    }
    ASSERT_EQ(result.num_with(Outcome::kOk), 1u) << result.errors().begin()->second.sample;
    EXPECT_EQ(result.num_output_tokens(), 20u);
    EXPECT_EQ(result.itl_us.count(), 19u);
    EXPECT_EQ(result.itl_us.buckets().front(), std::pair(int64_t{0}, uint64_t{15}));
    EXPECT_EQ(result.itl_us.value_at(50), 0);
    EXPECT_GE(result.itl_us.max(), 20'000);
    EXPECT_EQ(result.itl_spread_us.count(), 19u);
    EXPECT_EQ(result.itl_spread_us.buckets().front(), std::pair(int64_t{0}, uint64_t{3}));
    // Both rules tell the same total, up to the rounding of gap / 4.
    EXPECT_NEAR(result.itl_spread_us.mean() * 19, result.itl_us.mean() * 19, 16);
}

// Goal: what the server's prefix cache saves is known. Method: of three requests the last fails.
TEST_F(LevelRunTest, PromptTokensFromThePrefixCacheAreCounted) {
    start([](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(1, milliseconds(0), milliseconds(0));
        answer.num_cached_tokens = static_cast<uint32_t>(index);
        if (index == 2) answer.num_tokens_invented = 1;
        return answer;
    });
    const LevelResult result = run(kOneInFlight, 3);
    ASSERT_EQ(result.requests.size(), 3u);
    EXPECT_EQ(result.requests[0].num_cached_tokens, 0u);
    EXPECT_EQ(result.requests[1].num_cached_tokens, 1u);
    EXPECT_EQ(result.num_with(Outcome::kOk), 2u);
    EXPECT_EQ(result.num_prompt_tokens(), 6u);
    EXPECT_EQ(result.num_cached_tokens(), 1u);
}

TEST_F(LevelRunTest, ServerStallShowsInTheOpenLoopTail) {
    // 100 requests at 100/s; the server does nothing for a second from the 20th on. Every later
    // one that was due meanwhile cannot end before the stall does, and is charged from its due
    // time. A closed loop would have stopped asking.
    start(
        [](size_t, const Generate&) { return steady_answer(2, milliseconds(0), milliseconds(0)); });
    server_->stall_once(20, milliseconds(0), milliseconds(1000));
    const LevelResult result = run({0, 100}, 100);
    ASSERT_EQ(result.requests.size(), 100u);
    EXPECT_EQ(result.num_with(Outcome::kOk), 100u);

    int64_t stall_began_us = 0;
    for (const RequestRecord& request : result.requests) {
        if (request.index == 20) stall_began_us = request.intended_us;
    }
    size_t num_charged = 0;
    for (const RequestRecord& request : result.requests) {
        if (request.index <= 20 || request.intended_us > stall_began_us + 1'000'000) continue;
        EXPECT_GE(request.end_us, stall_began_us + 1'000'000) << request.index;
        ++num_charged;
    }
    EXPECT_GT(num_charged, 40u);
    EXPECT_GE(result.ttft_us.value_at(99), 900'000);
    EXPECT_GE(result.e2e_us.value_at(99), 900'000);
}

TEST_F(LevelRunTest, OpenLoopChargesAStallOfTheClientFromTheIntendedTime) {
    // The observer stalls the client's loop for 400 ms: what was due meanwhile is sent late, its
    // latency counts the delay, and the client is called the bottleneck.
    start(
        [](size_t, const Generate&) { return steady_answer(1, milliseconds(0), milliseconds(0)); });
    bool has_stalled = false;
    const LevelResult result =
        run({0, 200}, 100, milliseconds(60'000), [&](const LevelProgress& progress) {
            if (has_stalled || progress.num_sent == 0) return;
            has_stalled = true;
            std::this_thread::sleep_for(milliseconds(400));
        });
    ASSERT_TRUE(has_stalled);
    EXPECT_GE(result.client.lag_us.max(), 200'000);
    EXPECT_GE(result.client.loop_stall_us, 400'000);
    EXPECT_GE(result.e2e_us.max(), result.client.lag_us.max());
    EXPECT_NE(result.saturation(), "");
}

TEST_F(LevelRunTest, FailedRequestsAreCountedAsFailedAndNeverAsFast) {
    // Two of three requests fail at once; the latencies are those of the slow, good ones.
    start([](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(2, milliseconds(30), milliseconds(1));
        if (index % 3 == 0) return answer;
        answer.chunks.resize(index % 3 == 1 ? 0 : 1);
        for (auto& chunk : answer.chunks) chunk.after = milliseconds(0);
        answer.end = MockAnswer::End::kError;
        return answer;
    });
    const LevelResult result = run({3, 0}, 9);
    EXPECT_EQ(result.num_with(Outcome::kOk), 3u);
    EXPECT_EQ(result.num_with(Outcome::kFailed), 6u);
    EXPECT_EQ(result.ttft_us.count(), 3u);
    EXPECT_GE(result.ttft_us.min(), 30'000);
    EXPECT_EQ(result.itl_us.count(), 3u);
    EXPECT_EQ(result.num_output_tokens(), 6u);
    const auto errors = result.errors();
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors.begin()->second.code, Code::kResourceExhausted);
    EXPECT_EQ(errors.begin()->second.count, 6u);
    EXPECT_EQ(errors.begin()->second.sample, "the mock is full");
}

TEST_F(LevelRunTest, AnswersThatDoNotKeepTheirWordHaveFailed) {
    workload_.ignore_eos = true;
    workload_.max_tokens_low = workload_.max_tokens_high = 4;
    start([](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(4, milliseconds(0), milliseconds(0));
        if (index == 0) answer.chunks.resize(3);
        if (index == 1) answer.num_tokens_invented = 1;
        return answer;
    });
    const LevelResult result = run(kOneInFlight, 3);
    EXPECT_EQ(result.num_with(Outcome::kOk), 1u);
    ASSERT_EQ(result.requests.size(), 3u);
    EXPECT_THAT(result.requests[0].failure.error.message, HasSubstr("3 tokens instead of 4"));
    EXPECT_THAT(result.requests[1].failure.error.message, HasSubstr("chunks with 4 tokens"));

    workload_.ignore_eos = false;
    start([](size_t, const Generate&) { return MockAnswer(); });
    const LevelResult empty = run(kOneInFlight, 1);
    EXPECT_EQ(empty.num_with(Outcome::kFailed), 1u);
    EXPECT_THAT(empty.requests[0].failure.error.message, HasSubstr("finished without a token"));
}

TEST_F(LevelRunTest, ServerDyingFailsWhatIsInFlightAndEndsTheLevel) {
    start([](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(3, milliseconds(5), milliseconds(50));
        if (index == 5) answer.end = MockAnswer::End::kDisconnect;
        return answer;
    });
    const LevelResult result = run({4, 0}, 1000);
    EXPECT_THAT(result.broken, HasSubstr("closed by afdd before all answers came"));
    EXPECT_GE(result.num_with(Outcome::kFailed), 1u);
    EXPECT_LT(result.requests.size(), 1000u);
    EXPECT_EQ(result.errors().begin()->second.code, Code::kUnavailable);
}

TEST_F(LevelRunTest, GarbageEndsTheLevelWithItsReason) {
    start([](size_t, const Generate&) {
        MockAnswer answer;
        answer.end = MockAnswer::End::kGarbage;
        return answer;
    });
    const LevelResult result = run({2, 0}, 10);
    EXPECT_THAT(result.broken, HasSubstr("is this the socket of an afdd?"));
    EXPECT_EQ(result.num_with(Outcome::kOk), 0u);
}

TEST_F(LevelRunTest, SilentRequestTimesOutAndIsCancelled) {
    start([](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(1, milliseconds(0), milliseconds(0));
        if (index == 0) answer.end = MockAnswer::End::kNothing;
        return answer;
    });
    const LevelResult result = run(kOneInFlight, 3, milliseconds(1000));
    EXPECT_EQ(result.num_with(Outcome::kFailed), 1u);
    EXPECT_EQ(result.num_with(Outcome::kOk), 2u);
    EXPECT_EQ(result.requests.front().failure.error.code, Code::kDeadlineExceeded);
    EXPECT_THAT(result.requests.front().failure.error.message, HasSubstr("within 1000 ms"));
    EXPECT_EQ(server_->num_cancels(), 1u);
}

TEST_F(LevelRunTest, InterruptKeepsWhatWasMeasured) {
    start([](size_t index, const Generate&) {
        MockAnswer answer = steady_answer(1, milliseconds(0), milliseconds(0));
        if (index >= 4) answer.end = MockAnswer::End::kNothing;
        return answer;
    });
    const LevelResult result =
        run({2, 0}, 1000, milliseconds(60'000), [&](const LevelProgress& progress) {
            if (progress.num_ok >= 4) cancellation_.request();
        });
    EXPECT_TRUE(result.interrupted);
    EXPECT_EQ(result.num_with(Outcome::kOk), 4u);
    EXPECT_EQ(result.num_with(Outcome::kCancelled), 2u);
    EXPECT_EQ(result.num_with(Outcome::kFailed), 0u);
}

// Where nobody ever answers; Ctrl-C comes with the tenth request.
class SilentDoor final : public Door {
  public:
    explicit SilentDoor(const Cancellation& cancellation) : cancellation_(cancellation) {}

    std::optional<Failure> send(uint64_t, const Workload&, const PlannedRequest&) override {
        if (++num_sent_ == 10) cancellation_.request();
        return std::nullopt;
    }
    void give_up(uint64_t) override {}
    pollfd watched() const override { return {-1, 0, 0}; }
    bool has_heard() const override { return false; }
    Result<> receive(std::vector<DoorEvent>&) override {
        ++num_looks_;
        return {};
    }

    int num_sent() const { return num_sent_; }
    int num_looks() const { return num_looks_; }

  private:
    const Cancellation& cancellation_;
    int num_sent_ = 0;
    int num_looks_ = 0;
};

// To each request four tokens, one with each look, and then that they were `num_told`.
class OvercountingDoor final : public Door {
  public:
    explicit OvercountingDoor(uint64_t num_told) : num_told_(num_told) {}

    std::optional<Failure> send(uint64_t request_id,
                                const Workload&,
                                const PlannedRequest&) override {
        event_.request_id = request_id;
        return std::nullopt;
    }
    void give_up(uint64_t) override {}
    pollfd watched() const override { return {-1, 0, 0}; }
    bool has_heard() const override { return false; }
    Result<> receive(std::vector<DoorEvent>& events) override {
        event_.num_tokens = 1;
        events.push_back(event_);
        if (++num_looks_ < 4) return {};
        event_.kind = DoorEvent::Kind::kFinished;
        event_.num_tokens = num_told_;
        events.push_back(event_);
        return {};
    }

  private:
    const uint64_t num_told_;
    DoorEvent event_;
    int num_looks_ = 0;
};

// Goal: a request has a gap less than it has tokens, also where more chunks came than tokens are
// told. Oracle: three waits of the observer's interval, shared out.
TEST_F(LevelRunTest, FewerTokensThanChunksShareTheTimeBetweenThem) {
    for (const uint64_t num_told : {1u, 3u}) {
        OvercountingDoor door(num_told);
        LevelExtent extent;
        extent.num_requests = 1;
        LevelRun level_run(door, workload_, kOneInFlight, extent, milliseconds(60'000));
        const LevelResult result = level_run.run(next_request_id_, cancellation_, nullptr);
        ASSERT_EQ(result.num_with(Outcome::kOk), 1u);
        EXPECT_EQ(result.num_output_tokens(), num_told);
        for (const Histogram* histogram : {&result.itl_us, &result.itl_spread_us}) {
            EXPECT_EQ(histogram->count(), num_told - 1);
            EXPECT_GE(histogram->min(), num_told == 1 ? 0 : 3 * 100'000 / 2);
        }
    }
}

// Goal: a client that is behind its arrivals, or fills a large closed loop, hears answers and
// Ctrl-C all the same. Method: far more requests are due than one turn sends.
TEST_F(LevelRunTest, WhatIsDueDoesNotKeepTheLoopFromLooking) {
    for (const Level& level : {Level{0, 1e6}, Level{65'536, 0}}) {
        Result<Cancellation> cancellation = Cancellation::create();
        ASSERT_TRUE(cancellation.ok());
        SilentDoor door(cancellation.value());
        LevelExtent extent;
        extent.num_requests = 100'000;
        LevelRun silent(door, workload_, level, extent, milliseconds(60'000));
        const LevelResult result = silent.run(next_request_id_, cancellation.value(), nullptr);
        EXPECT_TRUE(result.interrupted);
        EXPECT_GE(door.num_looks(), 1);
        EXPECT_GE(door.num_sent(), 10);
        EXPECT_LE(door.num_sent(), 10 + LevelRun::kStartsMax);
    }
}

TEST_F(LevelRunTest, ClosedLoopKeepsItsNumberInFlight) {
    start([](size_t index, const Generate&) {
        return steady_answer(2, milliseconds(index % 5), milliseconds(2));
    });
    const LevelResult result = run({3, 0}, 40);
    ASSERT_EQ(result.num_with(Outcome::kOk), 40u);
    // Sweep over the half-open intervals [sent, end): never more than three at once, and three
    // for some time.
    size_t most = 0;
    for (const RequestRecord& at : result.requests) {
        const auto overlaps = std::count_if(
            result.requests.begin(), result.requests.end(), [&](const RequestRecord& other) {
                return other.sent_us <= at.sent_us && at.sent_us < other.end_us;
            });
        most = std::max(most, static_cast<size_t>(overlaps));
    }
    EXPECT_EQ(most, 3u);
}

TEST_F(LevelRunTest, TwoRunsAskTheSameRequests) {
    workload_.max_tokens_low = 1;
    workload_.max_tokens_high = 9;
    workload_.temperature = 0.7F;
    start([](size_t, const Generate& request) {
        return steady_answer(request.max_tokens(), milliseconds(0), milliseconds(0));
    });
    EXPECT_EQ(run(kOneInFlight, 8).num_with(Outcome::kOk), 8u);
    EXPECT_EQ(run({0, 1000}, 8).num_with(Outcome::kOk), 8u);
    const std::vector<Generate> sent = server_->generates();
    ASSERT_EQ(sent.size(), 16u);
    for (size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(sent[i].SerializeAsString(), sent[i + 8].SerializeAsString()) << i;
    }
}

TEST_F(LevelRunTest, DurationEndsTheLevelAndInFlightRequestsFinish) {
    start([](size_t, const Generate&) {
        return steady_answer(1, milliseconds(20), milliseconds(0));
    });
    LevelExtent extent;
    extent.duration = milliseconds(100);
    LevelRun closed(*door_, workload_, {2, 0}, extent, milliseconds(60'000));
    const LevelResult result = closed.run(next_request_id_, cancellation_, nullptr);
    EXPECT_GE(result.num_with(Outcome::kOk), 2u);
    EXPECT_EQ(result.num_with(Outcome::kFailed), 0u);
    EXPECT_GE(result.elapsed_us, 100'000);
    for (const RequestRecord& request : result.requests) EXPECT_LE(request.sent_us, 100'000);

    LevelRun open(*door_, workload_, {0, 50}, extent, milliseconds(60'000));
    EXPECT_EQ(open.run(next_request_id_, cancellation_, nullptr).requests.size(), 5u);

    // Two requests at 15 a second are not due at 133 ms.
    for (workload_.seed = 0; workload_.seed < 5; ++workload_.seed) {
        LevelRun slow(*door_, workload_, {0, 15}, extent, milliseconds(60'000));
        const LevelResult few = slow.run(next_request_id_, cancellation_, nullptr);
        EXPECT_EQ(few.requests.size(), 2u);
        EXPECT_GE(few.elapsed_us, 100'000) << "more a second than were offered";
        for (const RequestRecord& request : few.requests) EXPECT_LT(request.intended_us, 100'000);
    }
}

}  // namespace
}  // namespace afd::client
