// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/batcher.h"

#include <gtest/gtest.h>

#include <memory>

namespace afd::daemon {
namespace {

// Sequences with their requests, in order of admission.
class BatcherTest : public testing::Test {
  protected:
    Sequence& add(uint32_t num_tokens, uint32_t num_scheduled = 0, bool prompt_logprobs = false) {
        auto request = std::make_unique<SequenceRequest>();
        request->sequence_id = sequences_.size() + 1;
        request->tokens.assign(num_tokens, 7);
        request->num_prompt_tokens = num_tokens;
        request->prompt_logprobs = prompt_logprobs;
        auto& sequence = sequences_.emplace_back(std::make_unique<Sequence>());
        sequence->request = std::move(request);
        sequence->num_scheduled = num_scheduled;
        sequence->num_backed_positions = UINT32_MAX;
        sequence->is_started = num_scheduled > 0;
        active_.push_back(sequence.get());
        return *sequence;
    }

    // Rows of each piece, by sequence id: "1:5 2:1".
    std::string fill(Batcher& batcher, size_t events_max = 1000) {
        std::vector<BatchPiece> pieces;
        batcher.fill(LaneRows::kAny, active_, events_max, pieces);
        return text_of(pieces);
    }
    std::string fill_long(Batcher& batcher, size_t events_max = 1000) {
        std::vector<BatchPiece> pieces;
        batcher.fill(LaneRows::kLongPrompts, active_, events_max, pieces);
        return text_of(pieces);
    }
    static std::string text_of(const std::vector<BatchPiece>& pieces) {
        std::string text;
        for (const BatchPiece& piece : pieces) {
            text += (text.empty() ? "" : " ") +
                    std::to_string(piece.sequence->request->sequence_id) + ":" +
                    std::to_string(piece.first_position) + "+" + std::to_string(piece.num_rows);
        }
        return text;
    }

    std::vector<std::unique_ptr<Sequence>> sequences_;
    std::vector<Sequence*> active_;
};

TEST_F(BatcherTest, CutsAPromptIntoChunksThatFollowEachOther) {
    add(10);
    Batcher batcher({1, 4});
    EXPECT_EQ(fill(batcher), "1:0+4");
    EXPECT_EQ(fill(batcher), "1:4+4");
    EXPECT_EQ(fill(batcher), "1:8+2");
    EXPECT_EQ(fill(batcher), "");
    EXPECT_EQ(active_[0]->num_in_flight, 3U);
}

TEST_F(BatcherTest, TakesDecodingSequencesBeforePrefill) {
    add(100);
    add(5, 4);
    add(9, 8);
    Batcher batcher({1, 8});
    EXPECT_EQ(fill(batcher), "2:4+1 3:8+1 1:0+6");
}

TEST_F(BatcherTest, SharesDecodingSequencesOutOverTheMicroBatches) {
    for (int i = 0; i < 5; ++i) add(5, 4);
    Batcher batcher({2, 256});
    EXPECT_EQ(fill(batcher), "1:4+1 2:4+1 3:4+1");
    EXPECT_EQ(fill(batcher), "4:4+1 5:4+1");
}

TEST_F(BatcherTest, GivesEveryDecodingSequenceItsTurn) {
    for (int i = 0; i < 3; ++i) add(5, 4);
    Batcher batcher({1, 1});
    std::string turns;
    for (int i = 0; i < 6; ++i) {
        std::vector<BatchPiece> pieces;
        batcher.fill(LaneRows::kAny, active_, 1000, pieces);
        ASSERT_EQ(pieces.size(), 1U);
        turns += std::to_string(pieces[0].sequence->request->sequence_id);
        pieces[0].sequence->request->tokens.push_back(7);
    }
    EXPECT_EQ(turns, "123123");
}

// Goal: neither prompts nor decoding sequences starve when more of these run than there are rows.
// Method: as many steps as it takes the last of ten sequences of which seven fit beside the prompt.
// Oracle: a row of the prompt in each step, and turns of equal length.
TEST_F(BatcherTest, KeepsRowsForPrefillHoweverManyDecode) {
    for (int i = 0; i < 10; ++i) add(5, 4);
    Sequence& prompt = add(30);
    Batcher batcher({1, 8});
    for (uint32_t step = 0; step < 10; ++step) {
        std::vector<BatchPiece> pieces;
        batcher.fill(LaneRows::kAny, active_, 1000, pieces);
        ASSERT_EQ(pieces.size(), 8U);
        EXPECT_EQ(pieces.back().sequence, &prompt);
        EXPECT_EQ(pieces.back().num_rows, 1U);
        pieces.pop_back();
        for (const BatchPiece& piece : pieces) piece.sequence->request->tokens.push_back(7);
    }
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ(active_[i]->num_tokens(), 12U) << "7 turns each";
}

TEST_F(BatcherTest, KeepsNoMoreRowsForPrefillThanThereAre) {
    for (int i = 0; i < 40; ++i) add(5, 4);
    add(1);
    add(2);
    Batcher batcher({1, 32});
    std::vector<BatchPiece> pieces;
    batcher.fill(LaneRows::kAny, active_, 1000, pieces);
    EXPECT_EQ(pieces.size(), 29U + 2U) << "29 decode, and prompts of 1 and 2 rows";
}

TEST_F(BatcherTest, DecodingAndPrefillTakeTurnsInMicroBatchesOfOneRow) {
    add(5, 4);
    add(9);
    Batcher batcher({1, 1});
    std::string turns;
    for (int i = 0; i < 6; ++i) {
        std::vector<BatchPiece> pieces;
        batcher.fill(LaneRows::kAny, active_, 1000, pieces);
        ASSERT_EQ(pieces.size(), 1U);
        turns += std::to_string(pieces[0].sequence->request->sequence_id);
        if (turns.back() == '1') active_[0]->request->tokens.push_back(7);
    }
    EXPECT_EQ(turns, "212121");
}

TEST_F(BatcherTest, LeavesOutWhatEndsOrWaitsForItsSample) {
    add(10).is_ending = true;
    add(5, 5);
    Batcher batcher({1, 8});
    EXPECT_EQ(fill(batcher), "");
}

TEST_F(BatcherTest, SchedulesOnlyWhatHasRoomForItsEvents) {
    // 8 rows that report logprobs: 8, one start, and one token with the last.
    add(8, 0, true);
    Batcher batcher({1, 8});
    EXPECT_EQ(fill(batcher, 5), "1:0+4");
    active_[0]->is_started = true;
    EXPECT_EQ(fill(batcher, 0), "");
    EXPECT_EQ(fill(batcher, 5), "1:4+4");
}

// Goal: which prompts take the lane of long prompts, and that nobody else takes rows of theirs.
TEST_F(BatcherTest, LeavesLongPromptsToTheirLane) {
    add(30);
    add(8);
    add(25);
    add(6, 5);
    Batcher batcher({1, 8, 40, 8});
    EXPECT_EQ(fill(batcher), "4:5+1 2:0+7") << "the decoding one and the prompt of 8";
    EXPECT_EQ(fill_long(batcher), "1:0+30 3:0+10");
    EXPECT_EQ(fill_long(batcher), "") << "both prompts have rows in the lane";
    EXPECT_EQ(fill(batcher), "2:7+1");
    for (Sequence* sequence : active_) {
        sequence->is_in_long_lane = false;
        sequence->num_in_flight = 0;
    }
    EXPECT_EQ(fill_long(batcher), "3:10+15");
}

// Goal: the lane of long prompts has all rows of a sequence that are on their way, or none: what it
// gives back has no rows behind it. Method: a prompt begins in the other lanes, while a rank is
// lost, and the rank comes back while they have a chunk of it.
TEST_F(BatcherTest, TheLongLaneWaitsForWhatOtherLanesHaveOfAPrompt) {
    Sequence& prompt = add(30);
    Batcher batcher({2, 8, 40, 8});
    batcher.use_long_lane(false);
    EXPECT_EQ(fill(batcher), "1:0+8");
    batcher.use_long_lane(true);
    EXPECT_EQ(fill_long(batcher), "");
    EXPECT_FALSE(prompt.is_in_long_lane);
    EXPECT_EQ(fill(batcher), "") << "the rest is for the lane of long prompts";
    prompt.num_in_flight = 0;
    EXPECT_EQ(fill_long(batcher), "1:8+22");
    EXPECT_TRUE(prompt.is_in_long_lane);
}

TEST_F(BatcherTest, GivesAPromptThatCameBackToTheOtherLanes) {
    add(30).avoids_long_lane = true;
    Batcher batcher({1, 8, 40, 8});
    EXPECT_EQ(fill_long(batcher), "");
    EXPECT_EQ(fill(batcher), "1:0+8");
}

TEST_F(BatcherTest, WithThresholdZeroEveryPromptTakesTheLongLane) {
    add(1);
    add(6, 5);
    Batcher batcher({1, 8, 40, 0});
    EXPECT_EQ(fill_long(batcher), "1:0+1");
    EXPECT_EQ(fill(batcher), "2:5+1") << "decoding takes the others";
}

}  // namespace
}  // namespace afd::daemon
