// SPDX-License-Identifier: Apache-2.0
//
// The control area of the two-phase dispatch, both sides in one thread.

#include <gtest/gtest.h>

#include <limits>

#include "schedule/layout/round.h"
#include "schedule/shared_memory/shm_two_phase.h"
#include "schedule/two_phase/two_phase_receiver.h"
#include "schedule/two_phase/two_phase_sender.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

constexpr uint32_t kExperts = 4;
constexpr uint64_t kRowBytes = 64;
// Six tokens of two rows, in blocks of two tokens.
constexpr TwoPhaseCall kCall{.num_tokens = 6, .block_tokens = 2, .selected_expert_num = 2};

// One session and two ranks that each hold local experts 0 ... 3 in two layers.
class TwoPhaseControl : public testing::Test {
  protected:
    TwoPhaseControl()
        : placement_(ExpertPlacement::round_robin(
                         std::vector<LayerExperts>(2, LayerExperts{2 * kExperts, 0}), 2)
                         .value()),
          layout_(TwoPhaseControlLayout::compute(
              {.num_sessions = 1, .num_experts = 2 * kExperts, .num_ffn_workers = 2})),
          fds_(3),
          session_(zeroed_bytes(layout_.session_bytes())),
          ranks_{zeroed_bytes(layout_.rank_bytes()), zeroed_bytes(layout_.rank_bytes())},
          dispatch_(layout_,
                    0,
                    session_.get(),
                    {ranks_[0].get(), ranks_[1].get()},
                    {DoorbellRinger(&armed_[0], fds_[0]), DoorbellRinger(&armed_[1], fds_[1])},
                    memory_),
          returns_{make_return(0), make_return(1)} {}

    std::unique_ptr<ShmTwoPhaseReturn> make_return(uint32_t rank) {
        return std::make_unique<ShmTwoPhaseReturn>(
            layout_,
            rank,
            ranks_[rank].get(),
            std::vector<const std::byte*>{session_.get()},
            std::vector<DoorbellRinger>{DoorbellRinger(&armed_[2], fds_[2])},
            memory_);
    }
    TwoPhaseSender sender() { return TwoPhaseSender(dispatch_); }
    TwoPhaseReceiver receiver(uint32_t rank) {
        return {*returns_[rank],
                placement_,
                {.num_experts = kExperts, .row_bytes = {kRowBytes, kRowBytes}, .call = kCall}};
    }
    TwoPhaseSessionWords& words(uint32_t rank) {
        void* stripe = session_.get() + rank * layout_.session_stripe_bytes;
        return *static_cast<TwoPhaseSessionWords*>(stripe);
    }
    int32_t* counts(uint32_t rank) {
        void* first = &words(rank) + 1;
        return static_cast<int32_t*>(first);
    }

    ExpertPlacement placement_;
    TwoPhaseControlLayout layout_;
    EventFds fds_;
    std::array<int32_t, 3> armed_{};
    Bytes session_;
    std::array<Bytes, 2> ranks_;
    NamedTwoPhaseMemory memory_{"/none"};
    ShmTwoPhaseDispatch dispatch_;
    std::array<std::unique_ptr<ShmTwoPhaseReturn>, 2> returns_;
    const TwoPhaseOffer offer_{1, 3, 4, {5, 0, 4, 2}};
};

TEST_F(TwoPhaseControl, SizesAreExact) {
    EXPECT_EQ(layout_.session_stripe_bytes, 128U + 128U);
    EXPECT_EQ(layout_.rank_stripe_bytes, 128U + 128U);
    EXPECT_EQ(layout_.session_bytes(), 2 * 256U);
    EXPECT_EQ(layout_.rank_bytes(), 256U);
    // 3 blocks of 4 counts are 48 bytes: a line. 11 rows; two places of 4 rows.
    EXPECT_EQ(two_phase_sizes(offer_, {kRowBytes, kRowBytes}),
              (TwoPhaseSizes{128 + 11 * 64, 2 * 4 * 64}));
    EXPECT_EQ(two_phase_sizes({0, 1, 2, {2, 0, 0, 0}}, {64, 32}),
              (TwoPhaseSizes{128 + 128, 2 * 32}));
    EXPECT_EQ(two_phase_return_offset(4, 6, 64), 0U);
    EXPECT_EQ(two_phase_return_offset(5, 6, 64), 6 * 64U);
    EXPECT_EQ(two_phase_segment_name("/afd-x-0123", TwoPhaseSegment::kReceive, 2, 3, 17),
              "/afd-x-0123-ffn2-receive3r17");
    EXPECT_EQ(two_phase_segment_name("/afd-x-0123", TwoPhaseSegment::kReturn, 2, 3, 17),
              "/afd-x-0123-ffn2-return3r17");
}

TEST_F(TwoPhaseControl, ARoundGoesThroughItsStates) {
    TwoPhaseSender session = sender();
    TwoPhaseReceiver rank = receiver(1);
    EXPECT_EQ(rank.open_round(0, Order::kAcquire), 0);
    ASSERT_TRUE(session.may_begin(Order::kAcquire));
    const int32_t round = session.begin();
    EXPECT_EQ(round, 1);
    session.offer(1, offer_);
    EXPECT_EQ(session.wait_info(0)->kind, WaitKind::kGrant);
    EXPECT_EQ(session.wait_info(0)->peer, 1);

    ASSERT_EQ(rank.open_round(0, Order::kAcquire), round);
    TwoPhaseOffer copied;
    ASSERT_TRUE(rank.copy_offer(0, copied).ok());
    EXPECT_EQ(copied.counts, offer_.counts);
    EXPECT_EQ(copied.num_blocks, 3U);
    EXPECT_EQ(copied.block_rows_max, 4U);
    EXPECT_EQ(copied.layer_id, 1);
    EXPECT_EQ(session.answer(1, Order::kAcquire), TwoPhaseSender::Answer::kPending);
    const std::vector<int64_t> grants = {0, 5, 5, 9};
    rank.grant(0, round, grants);
    EXPECT_EQ(rank.granted(0, round), round);
    ASSERT_EQ(session.answer(1, Order::kAcquire), TwoPhaseSender::Answer::kGranted);
    std::vector<int64_t> found(kExperts);
    ASSERT_TRUE(session.copy_grants(1, offer_, found).ok());
    EXPECT_EQ(found, grants);

    session.publish_sent(1, 2);
    EXPECT_EQ(rank.sent(0, 3, Order::kAcquire), 2U);
    rank.publish_returned(0, 1);
    EXPECT_EQ(session.returned(1, 3, Order::kAcquire), 1U);
    EXPECT_EQ(session.wait_info(1)->kind, WaitKind::kResults);
    EXPECT_EQ(session.wait_info(1)->flag_expected, 2);
    session.publish_combined(1, 1);
    EXPECT_EQ(rank.combined(0, 3, Order::kAcquire), 1U);

    EXPECT_FALSE(rank.is_closed(0, round, Order::kAcquire));
    session.close();
    EXPECT_TRUE(rank.is_closed(0, round, Order::kAcquire));
    EXPECT_FALSE(session.may_begin(Order::kAcquire)) << "R4: not before the acknowledgement";
    EXPECT_EQ(session.wait_info(1)->kind, WaitKind::kAcknowledged);
    rank.acknowledge(0, round);
    EXPECT_TRUE(session.may_begin(Order::kAcquire));
    EXPECT_EQ(session.wait_info(1), std::nullopt);
    EXPECT_EQ(session.begin(), round + 1);
}

// R11: what a rank died of is counted across its successors, until a block ends.
TEST_F(TwoPhaseControl, CountsExecutionsOfABlockWithoutAnEnd) {
    for (uint32_t num_deaths = 0; num_deaths < 3; ++num_deaths) {
        EXPECT_EQ(receiver(0).num_unfinished(0, 7), num_deaths);
        EXPECT_EQ(receiver(0).num_unfinished(0, 8), 0U) << "another round";
        receiver(0).start_block(0, 7);
    }
    TwoPhaseReceiver rank = receiver(0);
    EXPECT_EQ(rank.num_unfinished(0, 7), ExecutionLog::kDeadly);
    rank.publish_returned(0, 1);
    EXPECT_EQ(rank.num_unfinished(0, 7), 0U);
}

TEST_F(TwoPhaseControl, ANewRoundForgetsTheProgressOfTheLast) {
    TwoPhaseSender session = sender();
    TwoPhaseReceiver rank = receiver(0);
    const std::vector<int64_t> grants(kExperts, 0);
    for (int i = 0; i < 2; ++i) {
        const int32_t round = session.begin();
        session.offer(0, offer_);
        EXPECT_EQ(rank.sent(0, 3, Order::kAcquire), 0U);
        EXPECT_EQ(rank.combined(0, 3, Order::kAcquire), 0U);
        rank.grant(0, round, grants);
        EXPECT_EQ(session.returned(0, 3, Order::kAcquire), 0U);
        session.publish_sent(0, 3);
        session.publish_combined(0, 3);
        rank.publish_returned(0, 3);
        session.close();
        rank.acknowledge(0, round);
    }
}

TEST_F(TwoPhaseControl, ANumberThatStandsSomewhereIsNotChosen) {
    words(0).offer = kRoundMax - 1;
    words(1).closed = kRoundMax;
    for (const uint32_t rank : {0U, 1U}) receiver(rank).acknowledge(0, words(rank).offer);
    receiver(1).refuse(0, 1);
    TwoPhaseSender session = sender();
    EXPECT_EQ(session.begin(), 2) << "after the last number comes 1, which stands as refused";
}

TEST_F(TwoPhaseControl, ASuccessorOfTheSessionClosesWhatIsOpen) {
    {
        TwoPhaseSender predecessor = sender();
        predecessor.begin();
        predecessor.offer(0, offer_);
    }
    TwoPhaseReceiver rank = receiver(0);
    const int32_t round = rank.open_round(0, Order::kAcquire);
    EXPECT_FALSE(rank.is_closed(0, round, Order::kAcquire));
    TwoPhaseSender successor = sender();
    EXPECT_TRUE(rank.is_closed(0, round, Order::kAcquire));
    EXPECT_FALSE(successor.may_begin(Order::kAcquire));
    EXPECT_EQ(successor.wait_info(0)->peer, 0);
    rank.acknowledge(0, round);
    EXPECT_TRUE(successor.may_begin(Order::kAcquire));
    EXPECT_EQ(successor.begin(), round + 1);
}

// A session that stores another offer over an open one, as only a spoilt one does: the first is
// over, and the rank goes on with what stands. Its successor closes that, and no other.
TEST_F(TwoPhaseControl, AnOfferThatStandsNoLongerIsClosed) {
    TwoPhaseSender session = sender();
    TwoPhaseReceiver rank = receiver(0);
    const int32_t round = session.begin();
    session.offer(0, offer_);
    EXPECT_EQ(rank.open_round(0, Order::kAcquire), round);
    EXPECT_FALSE(rank.is_closed(0, round, Order::kAcquire));
    words(0).offer = round + 5;
    EXPECT_TRUE(rank.is_closed(0, round, Order::kAcquire));
    rank.close(0, round);
    rank.acknowledge(0, round);
    EXPECT_EQ(rank.open_round(0, Order::kAcquire), round + 5);
    EXPECT_FALSE(rank.is_closed(0, round + 5, Order::kAcquire));
}

TEST_F(TwoPhaseControl, ASessionsBadBytesAreRefusedWithTheField) {
    TwoPhaseSender session = sender();
    session.begin();
    session.offer(0, offer_);
    const TwoPhaseReceiver rank = receiver(0);
    TwoPhaseOffer copied;
    const auto refusal = [&] {
        const auto done = rank.copy_offer(0, copied);
        return done.ok() ? std::string("accepted") : done.error().message;
    };
    ASSERT_EQ(refusal(), "accepted");
    const auto with = [&](int32_t& word, int32_t value) {
        const int32_t before = std::exchange(word, value);
        const std::string message = refusal();
        word = before;
        return message;
    };
    EXPECT_EQ(with(words(0).layer_id, 2), "two-phase offer: layer_id is 2; it must be below 2");
    EXPECT_EQ(with(words(0).layer_id, -1), "two-phase offer: layer_id is -1; it must be below 2");
    EXPECT_EQ(with(words(0).num_blocks, 0), "two-phase offer: num_blocks is 0; it must be 1 to 3");
    EXPECT_EQ(with(words(0).num_blocks, 4), "two-phase offer: num_blocks is 4; it must be 1 to 3");
    EXPECT_EQ(with(words(0).num_blocks, kRoundMax),
              "two-phase offer: num_blocks is 2147483647; it must be 1 to 3");
    EXPECT_EQ(with(words(0).block_rows_max, 5),
              "two-phase offer: block_rows_max is 5; it must be 0 to 4");
    EXPECT_EQ(with(words(0).block_rows_max, -1),
              "two-phase offer: block_rows_max is -1; it must be 0 to 4");
    // The other counts have six rows.
    EXPECT_EQ(with(counts(0)[0], 7),
              "two-phase offer: the sum of the counts is 13; it must be 0 to 12");
    EXPECT_EQ(with(counts(0)[3], kRoundMax),
              "two-phase offer: the sum of the counts is 2147483656; it must be 0 to 12");
    EXPECT_EQ(with(counts(0)[2], -1), "two-phase offer: a count is -1; it must be 0 or more");
}

// Goal: no session's words make segments larger than a call needs. Method: the largest offer of a
// call, and all of its rows in one block. Oracle: two_phase_sizes_max, and the limits by hand.
TEST_F(TwoPhaseControl, NoOfferIsLargerThanItsCall) {
    const TwoPhaseRowBytes bytes{kRowBytes, kRowBytes};
    const TwoPhaseSizes most = two_phase_sizes_max(kCall, kExperts, bytes);
    EXPECT_EQ(most, (TwoPhaseSizes{128 + 12 * 64, 2 * 4 * 64}));
    EXPECT_EQ(two_phase_sizes({1, 3, 4, {3, 3, 3, 3}}, bytes), most);
    EXPECT_EQ(two_phase_sizes_max(
                  {.num_tokens = 1, .block_tokens = 2, .selected_expert_num = 2}, kExperts, bytes),
              (TwoPhaseSizes{128 + 2 * 64, 2 * 64}));
    EXPECT_EQ(two_phase_sizes_max({}, kExperts, bytes), TwoPhaseSizes{});
}

// Goal: a successor goes on from a word that its predecessor can have stored, and from no other.
TEST_F(TwoPhaseControl, ASuccessorOfTheRankTakesOnlyACountThatWasSent) {
    TwoPhaseSender session = sender();
    session.begin();
    session.offer(0, offer_);
    session.publish_sent(0, 2);
    TwoPhaseReceiver rank = receiver(0);
    for (const int32_t returned : {0, 1, 2}) {
        rank.publish_returned(0, static_cast<uint32_t>(returned));
        EXPECT_EQ(receiver(0).copy_returned(0, 3).value(), static_cast<uint32_t>(returned));
    }
    for (const int32_t returned : {3, 4, kRoundMax, -1, std::numeric_limits<int32_t>::min()}) {
        rank.publish_returned(0, static_cast<uint32_t>(returned));
        const auto copied = receiver(0).copy_returned(0, 3);
        ASSERT_FALSE(copied.ok()) << returned;
        EXPECT_EQ(copied.error().code, Code::kDataLoss);
        EXPECT_EQ(copied.error().message,
                  "two-phase round of session 0: returned is " + std::to_string(returned) +
                      "; it must be 0 to 2");
    }
}

// Goal: a rank that takes back its acknowledgement after may_begin() costs itself and not us: this
// was an assertion. Oracle: the next round begins, and goes its way with the other rank.
TEST_F(TwoPhaseControl, AnAcknowledgementThatIsTakenBackEndsNobody) {
    TwoPhaseSender session = sender();
    ASSERT_TRUE(session.may_begin(Order::kAcquire));
    receiver(0).acknowledge(0, -77);
    const int32_t round = session.begin();
    EXPECT_EQ(round, 1);
    session.offer(1, offer_);
    receiver(1).grant(0, round, std::vector<int64_t>{0, 5, 5, 9});
    EXPECT_EQ(session.answer(1, Order::kAcquire), TwoPhaseSender::Answer::kGranted);
    session.close();
    receiver(1).acknowledge(0, round);
    EXPECT_FALSE(session.may_begin(Order::kAcquire)) << "not while the word of rank 0 is wrong";
    receiver(0).acknowledge(0, 0);
    EXPECT_TRUE(session.may_begin(Order::kAcquire));
}

TEST_F(TwoPhaseControl, ARanksBadBytesAreRefused) {
    TwoPhaseSender session = sender();
    TwoPhaseReceiver rank = receiver(0);
    const int32_t round = session.begin();
    session.offer(0, offer_);
    std::vector<int64_t> found(kExperts);
    const auto message_of = [&](const std::vector<int64_t>& grants) {
        rank.grant(0, round, grants);
        const auto copied = session.copy_grants(0, offer_, found);
        return copied.ok() ? std::string("accepted") : copied.error().message;
    };
    EXPECT_EQ(message_of({0, 77, 5, 9}), "accepted") << "an expert without rows needs no grant";
    EXPECT_EQ(message_of({0, 5, 5, 10}),
              "ffn rank 0 granted row 10 for 2 rows of local expert 3; rows must ascend by expert "
              "from row 9 and end by row 11");
    EXPECT_EQ(message_of({-1, 5, 5, 9}),
              "ffn rank 0 granted row -1 for 5 rows of local expert 0; rows must ascend by expert "
              "from row 0 and end by row 11");
    EXPECT_NE(message_of({0, 5, 4, 9}), "accepted") << "two experts' rows overlap";
    rank.publish_returned(0, 4);
    EXPECT_EQ(session.returned(0, 3, Order::kAcquire), 0U) << "more blocks than there are";
}

}  // namespace
}  // namespace afd::schedule
