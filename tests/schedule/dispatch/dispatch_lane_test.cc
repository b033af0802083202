// SPDX-License-Identifier: Apache-2.0
#include "schedule/dispatch/dispatch_lane.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "schedule/dispatch/ready_scan.h"
#include "schedule/layout/round.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

using Row = std::array<std::byte, 512>;

Row row_of(int value) {
    Row row;
    row.fill(static_cast<std::byte>(value));
    return row;
}

// One session, two ranks, with the interleaving of both sides written out by the test.
class DispatchLaneTest : public ::testing::Test {
  protected:
    DispatchLaneTest()
        : instance_(small_geometry()),
          dispatch_(instance_.dispatch(0)),
          returns_{instance_.returns(0), instance_.returns(1)},
          lane_(*dispatch_, small_geometry(), 0) {}

    // Publishes a round whose slot (token 0, k 0) is asked from `rank`.
    int32_t publish_to(DispatchLane& lane, uint32_t rank, DispatchMode mode) {
        lane.begin(4);
        lane.put({rank, 1}, 0, 0, row_of(9));
        return lane.publish(mode);
    }
    void return_row(uint32_t rank, int32_t round, int value) {
        returns_[rank]->put_result(0, 0, 0, 0, row_of(value), round);
    }
    void acknowledge(uint32_t rank, int32_t round) { returns_[rank]->acknowledge(0, 0, round); }
    // A round from publishing to acknowledgement.
    int32_t complete_round(uint32_t rank) {
        const int32_t round = publish_to(lane_, rank, DispatchMode::kAsync);
        return_row(rank, round, 1);
        acknowledge(rank, round);
        return round;
    }

    LocalInstance instance_;
    std::unique_ptr<ShmDispatchTransport> dispatch_;
    std::array<std::unique_ptr<ShmReturnTransport>, 2> returns_;
    DispatchLane lane_;
};

TEST_F(DispatchLaneTest, PublishesRowsIdsAndLayer) {
    EXPECT_EQ(lane_.poll(), RoundState::kIdle);
    ASSERT_TRUE(lane_.may_store());
    lane_.begin(4);
    lane_.put({1, 5}, 2, 1, row_of(9));
    const int32_t round = lane_.publish(DispatchMode::kAsync);
    EXPECT_EQ(round, 1);
    const int32_t* descriptor = instance_.descriptor(1, 0, 0);
    EXPECT_EQ(descriptor[0], 1);
    EXPECT_EQ(descriptor[1], 4);
    for (int slot = 0; slot < 9; ++slot) {
        EXPECT_EQ(descriptor[2 + slot], slot == 2 * 3 + 1 ? 5 : kMaskedId) << slot;
    }
    EXPECT_EQ(std::memcmp(returns_[1]->token_row(0, 0, 2, 1), row_of(9).data(), 512), 0);
    EXPECT_EQ(instance_.descriptor(0, 0, 0)[0], 0) << "rank 0 got no row";
    EXPECT_EQ(lane_.poll(), RoundState::kPending);
    returns_[1]->put_result(0, 0, 2, 1, row_of(3), round);
    ASSERT_EQ(lane_.poll(), RoundState::kReady);
    EXPECT_EQ(std::memcmp(lane_.row(2, 1).data(), row_of(3).data(), 512), 0);
}

TEST_F(DispatchLaneTest, MasksTheSlotsOfTheRoundBefore) {
    complete_round(0);
    ASSERT_TRUE(lane_.may_store());
    lane_.begin(5);
    lane_.put({0, 2}, 1, 1, row_of(1));
    lane_.publish(DispatchMode::kSync);
    EXPECT_EQ(instance_.descriptor(0, 0, 0)[2], kMaskedId);
    EXPECT_EQ(instance_.descriptor(0, 0, 0)[2 + 4], 2);
    EXPECT_EQ(instance_.descriptor(1, 0, 0)[0], lane_.round()) << "sync publishes to every rank";
    EXPECT_EQ(instance_.descriptor(1, 0, 0)[2 + 4], kMaskedId);
}

TEST_F(DispatchLaneTest, IsReadyAtOnceWithoutSlots) {
    lane_.begin(0);
    lane_.publish(DispatchMode::kSync);
    EXPECT_EQ(lane_.poll(), RoundState::kReady);
    EXPECT_FALSE(lane_.may_store()) << "both ranks were published to";
    acknowledge(0, lane_.round());
    EXPECT_FALSE(lane_.may_store());
    acknowledge(1, lane_.round());
    EXPECT_TRUE(lane_.may_store());
    lane_.begin(0);
    lane_.publish(DispatchMode::kAsync);
    EXPECT_TRUE(lane_.may_store()) << "nobody was published to";
}

// R4: having all results is not enough.
TEST_F(DispatchLaneTest, StoresNothingBeforeTheAcknowledgement) {
    const int32_t round = publish_to(lane_, 0, DispatchMode::kAsync);
    return_row(0, round, 1);
    ASSERT_EQ(lane_.poll(), RoundState::kReady);
    EXPECT_FALSE(lane_.may_store());
    EXPECT_FALSE(lane_.acknowledged(Order::kSeqCst));
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(lane_.begin(5), "not acknowledged by all");
    acknowledge(0, round);
    EXPECT_TRUE(lane_.acknowledged(Order::kSeqCst));
    EXPECT_TRUE(lane_.may_store());
}

// R4, the crash point after the last result flag: the worker dies before it acknowledges, its
// successor scans, is delayed after gathering, and the lane would move the slot to the other rank.
TEST_F(DispatchLaneTest, WaitsForTheSuccessorOfAWorkerThatDiedBeforeAcknowledging) {
    const ExpertPlacement placement = test_placement(8, 2);
    const int32_t round = publish_to(lane_, 0, DispatchMode::kAsync);
    return_row(0, round, 1);
    returns_[0] = instance_.returns(0);
    ReadyScan successor(*returns_[0], placement);
    ASSERT_EQ(successor.scan(0).size(), 1u);
    successor.take(successor.scan(0));
    ASSERT_EQ(lane_.poll(), RoundState::kReady);
    EXPECT_FALSE(lane_.may_store());
    successor.put_result(0, 0, 0, 0, row_of(77));
    EXPECT_EQ(lane_.row(0, 0)[0], std::byte{1}) << "a slot that carries the round is left alone";
    successor.acknowledge_taken();
    EXPECT_TRUE(lane_.may_store());
}

// Whoever spoils a descriptor in a rank's window ends the round, not the lane: the rank sees
// another round, and the lane is free when that is acknowledged; not before, since the rank may be
// at it.
TEST_F(DispatchLaneTest, IsFreeAgainWhenARankHasLetGoOfWhatStandsInItsPlace) {
    for (const int32_t spoilt : {12'345, -7, 0}) {
        const int32_t round = publish_to(lane_, 0, DispatchMode::kAsync);
        *instance_.descriptor(0, 0, 0) = spoilt;
        EXPECT_EQ(lane_.may_store(), spoilt == 0) << "nobody has acknowledged " << spoilt;
        acknowledge(0, spoilt);
        EXPECT_TRUE(lane_.acknowledged(Order::kSeqCst)) << spoilt;
        EXPECT_TRUE(lane_.may_store()) << spoilt;
        EXPECT_NE(publish_to(lane_, 0, DispatchMode::kAsync), round);
        acknowledge(0, lane_.round());
        EXPECT_TRUE(lane_.may_store());
    }
}

// R5: a flag of another round, older or refused, is not this round's result.
TEST_F(DispatchLaneTest, AcceptsExactlyItsRound) {
    const int32_t first = complete_round(0);
    ASSERT_TRUE(lane_.may_store());
    const int32_t second = publish_to(lane_, 1, DispatchMode::kAsync);
    ASSERT_NE(first, second);
    EXPECT_EQ(lane_.poll(), RoundState::kPending);
    *instance_.result_flag(0, 0, 0, 0) = second + 1;
    EXPECT_EQ(lane_.poll(), RoundState::kPending);
    *instance_.result_flag(0, 0, 0, 0) = refused_mark(second + 1);
    EXPECT_EQ(lane_.poll(), RoundState::kPending);
}

TEST_F(DispatchLaneTest, ReportsARefusedRound) {
    lane_.begin(0);
    lane_.put({0, 0}, 0, 0, row_of(1));
    lane_.put({1, 0}, 0, 1, row_of(1));
    const int32_t round = lane_.publish(DispatchMode::kAsync);
    returns_[0]->put_refusal(0, 0, 0, 0, round);
    EXPECT_EQ(lane_.poll(), RoundState::kPending) << "the other slot is still open";
    returns_[1]->put_result(0, 0, 0, 1, row_of(1), round);
    EXPECT_EQ(lane_.poll(), RoundState::kRefused);
}

// A request that ended (deadline, cancellation) frees nothing: R4 holds for its round.
TEST_F(DispatchLaneTest, StaysBlockedWhenItsResultsAreNoLongerWanted) {
    const int32_t round = publish_to(lane_, 1, DispatchMode::kSync);
    EXPECT_FALSE(lane_.may_store());
    acknowledge(1, round);
    EXPECT_FALSE(lane_.may_store());
    acknowledge(0, round);
    EXPECT_TRUE(lane_.may_store());
    EXPECT_EQ(lane_.poll(), RoundState::kPending) << "nobody put the result";
    EXPECT_NE(publish_to(lane_, 0, DispatchMode::kAsync), round);
}

// R10: a process died between the flag stores of two ranks. Its successor must not store before
// the rank that saw the round has acknowledged it, even if it would only use the other one.
TEST_F(DispatchLaneTest, WaitsForThePredecessorsRoundOfEveryRank) {
    const std::vector<int32_t> ids(9, kMaskedId);
    dispatch_->publish(0, 0, 0, ids, 5);
    DispatchLane successor(*dispatch_, small_geometry(), 0);
    EXPECT_FALSE(successor.may_store());
    const std::optional<WaitInfo> wait = successor.wait_info();
    ASSERT_TRUE(wait.has_value());
    EXPECT_EQ(*wait, (WaitInfo{WaitKind::kTakeover, 0, 0, 0, 0, 5}));
    acknowledge(0, 5);
    EXPECT_TRUE(successor.acknowledged(Order::kSeqCst));
    EXPECT_TRUE(successor.may_store());
    EXPECT_EQ(successor.wait_info(), std::nullopt);
}

// R1: the number after a takeover equals what stands in another used rank's descriptor, in a
// result slot, or in a refused slot.
TEST_F(DispatchLaneTest, SkipsNumbersThatStandInWordsOfTheRound) {
    *instance_.descriptor(0, 0, 0) = 4;
    *instance_.acknowledged(0, 0, 0) = 4;
    *instance_.descriptor(1, 0, 0) = 5;
    *instance_.acknowledged(1, 0, 0) = 5;
    *instance_.result_flag(0, 0, 0, 0) = 6;
    *instance_.result_flag(0, 0, 0, 1) = refused_mark(7);
    *instance_.result_flag(0, 0, 0, 2) = 8;  // Not used by the round.
    DispatchLane successor(*dispatch_, small_geometry(), 0);
    ASSERT_TRUE(successor.may_store());
    successor.begin(0);
    successor.put({0, 0}, 0, 0, row_of(1));
    successor.put({1, 0}, 0, 1, row_of(1));
    EXPECT_EQ(successor.publish(DispatchMode::kAsync), 8);
    EXPECT_EQ(successor.poll(), RoundState::kPending);
}

TEST_F(DispatchLaneTest, WrapsItsRoundNumbers) {
    *instance_.descriptor(0, 0, 0) = kRoundMax - 1;
    *instance_.acknowledged(0, 0, 0) = kRoundMax - 1;
    *instance_.result_flag(0, 0, 0, 0) = 1;
    lane_ = DispatchLane(*dispatch_, small_geometry(), 0);
    EXPECT_EQ(complete_round(0), kRoundMax);
    ASSERT_TRUE(lane_.may_store());
    EXPECT_EQ(complete_round(0), 1);
    EXPECT_EQ(lane_.poll(), RoundState::kReady);
}

TEST_F(DispatchLaneTest, SaysWhatItWaitsFor) {
    EXPECT_EQ(lane_.wait_info(), std::nullopt);
    const int32_t round = publish_to(lane_, 1, DispatchMode::kAsync);
    EXPECT_EQ(lane_.wait_info(), (WaitInfo{WaitKind::kResults, 1, 0, 4, 0, round}));
    return_row(1, round, 1);
    EXPECT_EQ(lane_.wait_info(), (WaitInfo{WaitKind::kAcknowledged, 1, 0, 4, 0, round}));
    acknowledge(1, round);
    EXPECT_EQ(lane_.wait_info(), std::nullopt);
}

// R12: what afdd voided counts as let go, its rows go to the other rank under another number, and
// the rank's own stripe waits for its successor.
TEST_F(DispatchLaneTest, GoesOnWithoutARankWhoseRoundIsVoided) {
    const int32_t round = publish_to(lane_, 0, DispatchMode::kAsync);
    ASSERT_EQ(lane_.voidable(0), round);
    EXPECT_EQ(lane_.voidable(1), std::nullopt) << "nothing stands there";
    lane_.ask_void(0, round);
    EXPECT_EQ(lane_.voidable(0), std::nullopt) << "asked once";
    EXPECT_FALSE(lane_.is_voided());
    lane_.answer_void(0, round + 1, true);
    EXPECT_FALSE(lane_.may_store()) << "an answer about another round";
    lane_.answer_void(0, round, true);
    EXPECT_TRUE(lane_.is_voided());
    EXPECT_TRUE(lane_.acknowledged(Order::kSeqCst));
    ASSERT_TRUE(lane_.may_store());
    EXPECT_FALSE(lane_.may_store_to(0));
    EXPECT_TRUE(lane_.may_store_to(1));
    const int32_t next = publish_to(lane_, 1, DispatchMode::kSync);
    EXPECT_NE(next, round);
    EXPECT_EQ(instance_.descriptor(0, 0, 0)[0], round) << "sync leaves out who has not let go";
    EXPECT_FALSE(lane_.is_voided());
    return_row(1, next, 7);
    acknowledge(1, next);
    ASSERT_EQ(lane_.poll(), RoundState::kReady);
    acknowledge(0, round);
    ASSERT_TRUE(lane_.may_store());
    EXPECT_TRUE(lane_.may_store_to(0));
    const int32_t last = publish_to(lane_, 0, DispatchMode::kSync);
    EXPECT_EQ(instance_.descriptor(0, 0, 0)[0], last);
}

// R12: nothing is stored while an answer is on its way, not even if the rank has acknowledged.
TEST_F(DispatchLaneTest, StoresNothingWhileItIsAskedWhetherARoundIsVoid) {
    const int32_t round = publish_to(lane_, 0, DispatchMode::kAsync);
    lane_.ask_void(0, round);
    return_row(0, round, 1);
    acknowledge(0, round);
    EXPECT_EQ(lane_.poll(), RoundState::kReady);
    EXPECT_FALSE(lane_.may_store());
    EXPECT_FALSE(lane_.acknowledged(Order::kSeqCst));
    lane_.answer_void(0, round, true);
    EXPECT_FALSE(lane_.is_voided()) << "its results are here";
    EXPECT_TRUE(lane_.may_store());
    EXPECT_TRUE(lane_.may_store_to(0)) << "granted too late to matter";
}

// What is asked for was read once: a rank that acknowledges, or whose window is spoilt, between the
// look and the question ends nobody.
TEST_F(DispatchLaneTest, AsksAboutTheRoundThatItSaw) {
    const int32_t round = publish_to(lane_, 0, DispatchMode::kAsync);
    ASSERT_EQ(lane_.voidable(0), round);
    acknowledge(0, round);
    instance_.descriptor(0, 0, 0)[0] = round + 7;
    lane_.ask_void(0, round);
    lane_.answer_void(0, round, false);
    instance_.descriptor(0, 0, 0)[0] = round;
    EXPECT_TRUE(lane_.may_store());
}

// Nor one that takes its acknowledgement back while a round is laid out for it.
TEST_F(DispatchLaneTest, AnAcknowledgementThatWasSeenStays) {
    const int32_t round = publish_to(lane_, 0, DispatchMode::kAsync);
    lane_.ask_void(0, round);
    lane_.answer_void(0, round, true);
    acknowledge(0, round);
    ASSERT_TRUE(lane_.may_store());
    ASSERT_TRUE(lane_.may_store_to(0));
    acknowledge(0, round - 1);
    EXPECT_TRUE(lane_.may_store_to(0));
    lane_.begin(4);
    lane_.use({0, 1}, 0, 0);
    EXPECT_NE(lane_.publish(DispatchMode::kSync), round);
}

TEST_F(DispatchLaneTest, WaitsForARoundThatAfddDoesNotVoid) {
    const int32_t round = publish_to(lane_, 0, DispatchMode::kAsync);
    lane_.ask_void(0, round);
    lane_.answer_void(0, round, false);
    EXPECT_FALSE(lane_.is_voided());
    EXPECT_FALSE(lane_.may_store());
    acknowledge(0, round);
    EXPECT_TRUE(lane_.may_store());
}

TEST_F(DispatchLaneTest, StoresNothingToARankThatHasNotAcknowledgedWhatIsVoid) {
    const int32_t round = publish_to(lane_, 0, DispatchMode::kAsync);
    lane_.ask_void(0, round);
    lane_.answer_void(0, round, true);
    ASSERT_TRUE(lane_.may_store());
    lane_.begin(4);
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(lane_.use({0, 1}, 0, 0), "has not acknowledged round 1, which was voided");
}

// R12 with router = ffn: who may have been to answer an offered token nobody here knows, so a void
// at any rank that got it counts; the next offer leaves that rank out and says so to the others.
TEST_F(DispatchLaneTest, OffersATokenWithoutARankWhoseRoundIsVoided) {
    ASSERT_TRUE(lane_.may_store());
    lane_.begin(4);
    lane_.offer(1, 2, row_of(9));
    const int32_t round = lane_.publish(DispatchMode::kAsync);
    lane_.ask_void(0, round);
    lane_.answer_void(0, round, true);
    EXPECT_TRUE(lane_.is_voided());
    EXPECT_FALSE(lane_.may_store()) << "rank 1 has not let go";
    acknowledge(1, round);
    ASSERT_TRUE(lane_.may_store());
    lane_.begin(4);
    lane_.offer(1, 2, row_of(9), 1u << 0);
    const int32_t next = lane_.publish(DispatchMode::kSync);
    EXPECT_EQ(instance_.descriptor(0, 0, 0)[0], round);
    EXPECT_EQ(instance_.descriptor(1, 0, 0)[0], next);
    const int32_t id = instance_.descriptor(1, 0, 0)[2 + 3];
    EXPECT_TRUE(is_offered_id(id));
    EXPECT_EQ(left_out_of_offer(id), 1u);
    EXPECT_FALSE(lane_.is_voided());
    returns_[1]->put_result(0, 0, 1, 0, row_of(1), next);
    returns_[1]->put_result(0, 0, 1, 1, row_of(2), next);
    acknowledge(1, next);
    EXPECT_EQ(lane_.poll(), RoundState::kReady);
}

TEST_F(DispatchLaneTest, OffersNothingToARankThatHasNotAcknowledgedWhatIsVoid) {
    const int32_t round = publish_to(lane_, 0, DispatchMode::kAsync);
    lane_.ask_void(0, round);
    lane_.answer_void(0, round, true);
    ASSERT_TRUE(lane_.may_store());
    lane_.begin(4);
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(lane_.offer(0, 1, row_of(1)), "has not acknowledged round 1, which was voided");
}

// R10 and R12: a new session has its predecessor's round voided, which nobody wants any more.
TEST_F(DispatchLaneTest, HasThePredecessorsRoundVoided) {
    const std::vector<int32_t> ids(9, kMaskedId);
    dispatch_->publish(0, 0, 0, ids, 5);
    DispatchLane successor(*dispatch_, small_geometry(), 0);
    ASSERT_EQ(successor.voidable(0), 5);
    successor.ask_void(0, 5);
    EXPECT_FALSE(successor.may_store());
    successor.answer_void(0, 5, true);
    EXPECT_EQ(successor.wait_info(), std::nullopt);
    ASSERT_TRUE(successor.may_store());
    EXPECT_FALSE(successor.may_store_to(0));
    EXPECT_GT(publish_to(successor, 1, DispatchMode::kAsync), 0);
}

TEST_F(DispatchLaneTest, RefusesASlotUsedTwice) {
    lane_.begin(0);
    lane_.use({0, 0}, 0, 0);
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(lane_.use({1, 0}, 0, 0), "used twice");
}

// router = ffn: goal, method and oracle in one round. Token 1 is offered for two slots and asks
// rank 0 for its third; both ranks get its row once.
TEST_F(DispatchLaneTest, OffersATokenToEveryRank) {
    lane_.begin(4);
    lane_.offer(1, 2, row_of(9));
    lane_.use({0, 6}, 1, 2);
    const int32_t round = lane_.publish(DispatchMode::kAsync);
    for (uint32_t rank = 0; rank < 2; ++rank) {
        const int32_t* descriptor = instance_.descriptor(rank, 0, 0);
        EXPECT_EQ(descriptor[0], round);
        for (int slot = 0; slot < 9; ++slot) {
            const int32_t shared = rank == 0 && slot == 5 ? 6 : kMaskedId;
            EXPECT_EQ(descriptor[2 + slot], slot == 3 ? kOfferedId : shared) << slot;
        }
        EXPECT_EQ(std::memcmp(returns_[rank]->token_row(0, 0, 1, 0), row_of(9).data(), 512), 0);
    }
    EXPECT_EQ(lane_.num_slots(), 3u);

    // Rank 1 has two of the slots; the round waits for all three.
    returns_[1]->put_result(0, 0, 1, 0, row_of(1), round);
    acknowledge(1, round);
    returns_[0]->put_result(0, 0, 1, 2, row_of(3), round);
    EXPECT_EQ(lane_.poll(), RoundState::kPending);
    EXPECT_EQ(lane_.wait_info(), (WaitInfo{WaitKind::kResults, 0, 0, 4, 0, round}))
        << "rank 1 has acknowledged, so only rank 0 can have it";
    returns_[0]->put_result(0, 0, 1, 1, row_of(2), round);
    EXPECT_EQ(lane_.poll(), RoundState::kReady);
    EXPECT_FALSE(lane_.may_store()) << "rank 0 has not acknowledged";
    acknowledge(0, round);
    ASSERT_TRUE(lane_.may_store());

    // The next round finds every id masked again.
    publish_to(lane_, 0, DispatchMode::kSync);
    for (int slot = 0; slot < 9; ++slot) {
        EXPECT_EQ(instance_.descriptor(1, 0, 0)[2 + slot], kMaskedId) << slot;
        EXPECT_EQ(instance_.descriptor(0, 0, 0)[2 + slot], slot == 0 ? 1 : kMaskedId) << slot;
    }
}

// R1: any rank may answer any slot of an offered token, so all of them count.
TEST_F(DispatchLaneTest, SkipsNumbersThatStandInAnySlotOfAnOfferedToken) {
    *instance_.result_flag(0, 0, 0, 2) = 1;
    *instance_.result_flag(0, 0, 0, 1) = refused_mark(2);
    lane_.begin(0);
    lane_.offer(0, 3, row_of(1));
    EXPECT_EQ(lane_.publish(DispatchMode::kAsync), 3);
}

// R11: a rank that refuses cannot know which slots of an offered token are its own. It says so in
// its acknowledgement, which also counts for R4.
TEST_F(DispatchLaneTest, ReportsARefusalOfOfferedTokens) {
    lane_.begin(0);
    lane_.offer(0, 2, row_of(1));
    const int32_t round = lane_.publish(DispatchMode::kAsync);
    returns_[0]->put_result(0, 0, 0, 0, row_of(1), round);
    acknowledge(0, round);
    EXPECT_EQ(lane_.poll(), RoundState::kPending);
    acknowledge(1, refused_mark(round));
    EXPECT_TRUE(lane_.acknowledged(Order::kSeqCst));
    EXPECT_EQ(lane_.poll(), RoundState::kRefused);
    EXPECT_TRUE(lane_.may_store());
    EXPECT_TRUE(DispatchLane(*dispatch_, small_geometry(), 0).may_store()) << "R10";
}

}  // namespace
}  // namespace afd::schedule
