// SPDX-License-Identifier: Apache-2.0
//
// Goal: a rank's request for the memory of a round ends, whether afdd answers or not.
// Method: a session and a rank's part on this thread, step by step, by a clock that the test sets;
// the test is afdd. Oracle: what the rank asks, the words of the round, the session's error, and
// the bits of local_result of tests/daemon/lanes/random_moe.h.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/lanes/two_phase_session.h"

namespace afd::daemon {
namespace {

using schedule::Order;
using testing::HasSubstr;

constexpr uint64_t kAskAgainUs = 1000;
constexpr uint64_t kAnswerTimeoutUs = 10'000;

class TwoPhaseRequest : public testing::Test {
  protected:
    TwoPhaseRequest()
        : port_(64, 64, -1),
          receiver_(world_.receiver(
              0, placement_, two_phase_row_bytes(schedule::RowDtype::kBf16, kHidden))),
          table_(shard(placement_, 0)),
          experts_(table_, placement_.num_local_experts_per_layer(0)),
          part_({.receiver = receiver_.get(),
                 .placement = &placement_,
                 .experts = &experts_,
                 .hidden = kHidden,
                 .parallel = &serial_,
                 .port = &port_,
                 .ask_again_us = kAskAgainUs,
                 .answer_timeout_us = kAnswerTimeoutUs,
                 .now_us = [] { return now_us_; }}),
          session_(world_, placement_, 0, 16) {
        now_us_ = 1'000'000;
    }

    // A seed of a call with rows enough to be worth a round.
    static uint32_t seed_of_many_rows() {
        uint32_t seed = 0;
        while (Call(seed, kTwoPhaseTokensMax).input.num_tokens < 50) ++seed;
        return seed;
    }

    // Steps of the rank until there is none without waiting.
    void run_rank() {
        while (part_.has_work(Order::kAcquire)) ASSERT_TRUE(part_.advance());
        EXPECT_FALSE(part_.advance()) << "has_work() must say so";
    }
    // What the rank said since the last look.
    std::vector<WorkerEvent> events() {
        std::vector<WorkerEvent> taken;
        for (WorkerEvent event; port_.pop_event(event);) taken.push_back(std::move(event));
        return taken;
    }
    // The one request since the last look.
    SegmentRound request() {
        const auto taken = events();
        if (taken.size() != 1 || taken[0].kind != WorkerEvent::Kind::kSegmentRequest) {
            ADD_FAILURE() << taken.size() << " events, wanted one request";
            return {};
        }
        return taken[0].segment;
    }
    // afdd makes the memory and says so.
    void answer(const SegmentRound& round) {
        using schedule::TwoPhaseSegment;
        world_.memory().make({TwoPhaseSegment::kReceive, 0, round.session, round.round},
                             round.receive_bytes);
        world_.memory().make({TwoPhaseSegment::kReturn, 0, round.session, round.round},
                             round.return_bytes);
        WorkerCommand command{.kind = WorkerCommand::Kind::kSegment};
        command.session = round.session;
        command.round = round.round;
        part_.on_segment(command);
    }
    // Both sides of a round that is granted, to its end.
    void run_round(ops::MoeTicket&& ticket, const Call& call) {
        while (session_.step(ticket)) run_rank();
        const auto finished = session_.finish(std::move(ticket), call);
        ASSERT_TRUE(finished.ok()) << finished.error().message;
        EXPECT_EQ(session_.bits(call), local_result(call));
        run_rank();
        EXPECT_TRUE(session_.idle());
    }

    static inline uint64_t now_us_ = 0;
    const schedule::ExpertPlacement placement_ = placement_of(1);
    TwoPhaseWorld world_{1, 1, kPerLayer};
    WorkerPort port_;  // Not the world's: nobody answers by itself.
    ops::SerialParallel serial_;
    std::unique_ptr<schedule::TwoPhaseReceiver> receiver_;
    const ops::ExpertTable table_;
    ops::GroupedExperts experts_;
    TwoPhaseExperts part_;
    TwoPhaseSession session_;
};

// Goal: an answer that was lost costs the time until the rank asks again, and no more. Oracle: the
// second request is the first; the round that it brings has the right bits; a second answer changes
// nothing.
TEST_F(TwoPhaseRequest, WithoutAnAnswerIsMadeAgain) {
    const Call call(seed_of_many_rows(), kTwoPhaseTokensMax);
    EXPECT_EQ(part_.due_us(), UINT64_MAX);
    ops::MoeTicket ticket = session_.start(call);
    run_rank();
    const SegmentRound first = request();
    EXPECT_EQ(part_.due_us(), now_us_ + kAskAgainUs);
    now_us_ += kAskAgainUs - 1;
    run_rank();
    EXPECT_EQ(events().size(), 0U) << "too early";
    now_us_ += 1;
    run_rank();
    const SegmentRound second = request();
    EXPECT_EQ(second.session, first.session);
    EXPECT_EQ(second.round, first.round);
    EXPECT_EQ(second.receive_bytes, first.receive_bytes);
    EXPECT_EQ(second.return_bytes, first.return_bytes);
    answer(second);
    EXPECT_EQ(part_.due_us(), UINT64_MAX);
    answer(first);
    now_us_ += kAnswerTimeoutUs;
    run_round(std::move(ticket), call);
}

// Goal: a rank that finds no room for its request sleeps until it tries again, whereas work that it
// cannot do would keep it awake. Oracle: nothing to do until a moment that it names, again and
// again; then the one request, and the bits of its round.
TEST_F(TwoPhaseRequest, WithoutRoomForItIsMadeLater) {
    const Call call(seed_of_many_rows(), kTwoPhaseTokensMax);
    while (port_.push({.kind = WorkerEvent::Kind::kWait})) {
    }
    ops::MoeTicket ticket = session_.start(call);
    for (int i = 0; i < 2; ++i) {
        run_rank();
        ASSERT_GT(part_.due_us(), now_us_);
        ASSERT_LE(part_.due_us(), now_us_ + kAskAgainUs);
        now_us_ = part_.due_us();
    }
    events();
    run_rank();
    answer(request());
    run_round(std::move(ticket), call);
}

// Goal: a rank that hears nothing gives up and says for what it waited; the session goes through
// the windows, and the next round is one like any other. Oracle: the session's error, the line of
// the rank's log, and the bits of the next round.
TEST_F(TwoPhaseRequest, WithoutAnAnswerIsGivenUpAtItsDeadline) {
    const Call call(seed_of_many_rows(), kTwoPhaseTokensMax);
    ops::MoeTicket ticket = session_.start(call);
    testing::internal::CaptureStderr();
    run_rank();
    const SegmentRound asked = request();
    for (uint32_t i = 1; i < kAnswerTimeoutUs / kAskAgainUs; ++i) {
        now_us_ = part_.due_us();
        run_rank();
        EXPECT_EQ(request().round, asked.round);
    }
    now_us_ = part_.due_us();
    run_rank();
    EXPECT_EQ(events().size(), 0U) << "it does not ask any more";
    EXPECT_THAT(
        testing::internal::GetCapturedStderr(),
        HasSubstr("two-phase round " + std::to_string(asked.round) +
                  " of session 0: rank 0 waits for afdd to make " +
                  std::to_string(asked.receive_bytes) + " + " + std::to_string(asked.return_bytes) +
                  " bytes, asked for 10 times in 10 ms; the batch goes through the "
                  "windows"));
    // Too late: what was said to the session is not taken back.
    answer(asked);
    while (session_.step(ticket)) {
    }
    const auto refused = session_.finish(std::move(ticket), call);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted) << "so the windows are tried";
    EXPECT_THAT(refused.error().message, HasSubstr("afdd did not answer it"));
    run_rank();
    ASSERT_TRUE(session_.idle());
    ASSERT_EQ(events().size(), 1U) << "the release";

    ticket = session_.start(call);
    run_rank();
    answer(request());
    run_round(std::move(ticket), call);
}

// Goal: a batch that is cancelled while the rank waits for afdd does not wait with it. Oracle: the
// acknowledgement without an answer, the release behind the request, and the bits of the next
// round, which the late answer does not disturb.
TEST_F(TwoPhaseRequest, OfARoundThatIsClosedNeedsNoAnswer) {
    const Call call(seed_of_many_rows(), kTwoPhaseTokensMax);
    SegmentRound late;
    {
        const ops::MoeTicket ticket = session_.start(call);
        run_rank();
        late = request();
    }
    run_rank();
    ASSERT_TRUE(session_.idle());
    const auto released = events();
    ASSERT_EQ(released.size(), 1U);
    EXPECT_EQ(released[0].kind, WorkerEvent::Kind::kSegmentRelease);
    EXPECT_EQ(released[0].segment.round, late.round);

    ops::MoeTicket ticket = session_.start(call);
    run_rank();
    const SegmentRound next = request();
    ASSERT_NE(next.round, late.round);
    answer(late);
    EXPECT_NE(part_.due_us(), UINT64_MAX) << "the answer was to another round";
    answer(next);
    run_round(std::move(ticket), call);
}

}  // namespace
}  // namespace afd::daemon
