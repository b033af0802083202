// SPDX-License-Identifier: Apache-2.0

// The attention loop over lanes that answer when the test says: what it makes of answers that come
// late, out of order, as refusals, or never. No windows and no other process.

#include "daemon/attention/attention_loop.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "tests/daemon/attention/loop_harness.h"

namespace afd::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Goal: when and in which order lanes answer never changes what is sampled.
// Method: three requests, prompts of one and of several chunks, over two lanes; each call is held
// until nothing else moves, the second lane's answered first whenever both have one. Oracle: the
// tokens of each request alone over a lane that answers at once.
TEST(AttentionLoop, LateAnswersOutOfOrderGiveTheSameTokens) {
    const std::map<uint64_t, uint32_t> prompts = {{1, 3}, {2, 11}, {3, 5}};
    LoopHarness harness({any_rows(), any_rows()});
    for (const auto& [id, length] : prompts) harness.admit(id, length, kNew);
    std::array<int32_t, 2> answered{};
    size_t num_reordered = 0;
    const auto all_over = [&] {
        return std::all_of(prompts.begin(), prompts.end(), [&](const auto& prompt) {
            return harness.request(prompt.first).is_over;
        });
    };
    while (!all_over()) {
        const auto is_held = [&](size_t lane) {
            return harness.lane(lane).num_started() > answered[lane];
        };
        ASSERT_TRUE(harness.until([&] { return all_over() || is_held(0) || is_held(1); }));
        if (all_over()) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        num_reordered += is_held(0) && is_held(1);
        const size_t lane = is_held(1) ? 1 : 0;
        ++answered[lane];
        harness.lane(lane).answer();
    }
    EXPECT_GT(num_reordered, 0U) << "both lanes had a call open";
    for (const auto& [id, length] : prompts) {
        EXPECT_EQ(harness.request(id).code, Code::kOk) << harness.request(id).text;
        EXPECT_EQ(harness.request(id).tokens, expected_tokens(id, length)) << id;
    }
}

// Goal: rows whose attention is done one after another, with a look for commands in between, give
// the tokens of rows that have it together. Method: a tile of no more than one product, so of one
// row; two requests, prompts of several chunks. Oracle: the tokens of each alone in whole tiles.
TEST(AttentionLoop, TilesOfSingleRowsGiveTheSameTokens) {
    LoopHarness harness({any_rows(FakeLane::kAll), any_rows(FakeLane::kAll)}, {}, 0, 256, 1);
    harness.admit(1, 11, kNew);
    harness.admit(2, 7, kNew);
    ASSERT_TRUE(harness.until_over(1));
    ASSERT_TRUE(harness.until_over(2));
    EXPECT_EQ(harness.request(1).tokens, expected_tokens(1, 11));
    EXPECT_EQ(harness.request(2).tokens, expected_tokens(2, 7));
}

// Goal: the head of a long prompt that reports log probabilities holds up nobody: other rows go on,
// and commands are taken, between its tiles; and its log probabilities are those of small chunks.
// Method: a request waits in the middle of decoding until the prompt, which takes another lane as a
// whole, is in its last layer. Oracle: tokens of the first among the log probabilities of the
// second; the second alone over a lane of few rows.
TEST(AttentionLoop, OtherRowsGoOnBetweenTheTilesOfAHead) {
    constexpr uint32_t kPrompt = 7 * TokenEmitter::kTileRows - 20;
    constexpr int32_t kLayers = 3;
    LoopHarness* loop = nullptr;
    FakeLane::Settings long_lane = long_prompts(FakeLane::kAll);
    long_lane.traits.rows_max = kPrompt;
    long_lane.on_start = [&] {
        if (loop->lane(1).num_started() == kLayers - 1) loop->lane(0).answer(FakeLane::kAll);
    };
    LoopHarness harness({any_rows(kLayers), long_lane}, {}, 8, 2048);
    loop = &harness;
    harness.admit(1, 3, 500);
    ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == kLayers + 1; }));
    harness.admit(2, kPrompt, 1, true);
    ASSERT_TRUE(harness.until_over(2));
    EXPECT_EQ(harness.lane(1).num_started(), kLayers);
    harness.cancel(1);
    ASSERT_TRUE(harness.until_over(1));

    const auto first = std::ranges::find(harness.heard(), 2U);
    const auto last = std::find(harness.heard().rbegin(), harness.heard().rend(), 2U).base();
    EXPECT_GE(std::count(first, last, 1U), 1) << "a token in each three turns";
    EXPECT_EQ(harness.request(2).prompt_logprobs.size(), kPrompt - 1);

    LoopHarness alone({any_rows(FakeLane::kAll)}, {}, 0, 2048);
    alone.admit(2, kPrompt, 1, true);
    ASSERT_TRUE(alone.until_over(2));
    EXPECT_EQ(harness.request(2).tokens, alone.request(2).tokens);
    EXPECT_EQ(harness.request(2).prompt_logprobs, alone.request(2).prompt_logprobs);
}

// Goal: a tile ends before the row with which it would have too many positions, and has one row at
// least. Method: rows of positions 0 to 5.
TEST(AttentionLoop, ATileHasAsManyRowsAsItsPositionsAllow) {
    const HarnessModel model;
    const model::AttentionHalf attention = model.attention();
    FakeLane lane(long_prompts(), schedule::DoorbellRinger());
    MicroBatch batch(0, attention.config(), lane);
    Sequence sequence;
    sequence.request = std::make_unique<SequenceRequest>();
    sequence.request->tokens.assign(6, 2);
    sequence.held.table = {0};
    batch.pieces().push_back({&sequence, 0, 6, 0});
    batch.begin();
    EXPECT_EQ(batch.rows_within(0, 6, 100), 6U);
    EXPECT_EQ(batch.rows_within(0, 4, 100), 4U);
    EXPECT_EQ(batch.rows_within(0, 6, 6), 3U) << "1 + 2 + 3 positions";
    EXPECT_EQ(batch.rows_within(3, 6, 9), 2U) << "4 + 5 positions";
    EXPECT_EQ(batch.rows_within(4, 6, 3), 1U);
    EXPECT_EQ(batch.rows_within(5, 6, 100), 1U);
}

// Goal: a refusal (R11) ends the requests of the refused call with the lane's words, and no other.
// Method: the second call of the lane is refused; another request follows.
TEST(AttentionLoop, ARefusalEndsItsRequestsOnly) {
    FakeLane::Settings refusing = any_rows(FakeLane::kAll);
    refusing.refused_call = 2;
    LoopHarness harness({refusing});
    harness.admit(1, 3, kNew);
    ASSERT_TRUE(harness.until_over(1));
    EXPECT_EQ(harness.request(1).code, Code::kUnavailable);
    EXPECT_EQ(harness.request(1).text, "the fake experts refuse these rows");
    EXPECT_THAT(harness.request(1).tokens, IsEmpty());
    harness.admit(2, 3, kNew);
    ASSERT_TRUE(harness.until_over(2));
    EXPECT_EQ(harness.request(2).tokens, expected_tokens(2, 3));
}

// Goal: rows that come back corrupted again and again fill no log. Method: as many times as a layer
// is sent again. Oracle: the lines of the log.
TEST(AttentionLoop, CorruptedRowsAreSentAgainAndSaidOnce) {
    FakeLane::Settings corrupting = any_rows(FakeLane::kAll);
    corrupting.num_corrupted = 3;
    testing::internal::CaptureStdout();
    {
        LoopHarness harness({corrupting});
        harness.admit(1, 3, kNew);
        ASSERT_TRUE(harness.until_over(1));
        EXPECT_EQ(harness.request(1).code, Code::kOk) << harness.request(1).text;
        EXPECT_GT(harness.lane(0).num_started(), 3);
    }
    const std::string log = testing::internal::GetCapturedStdout();
    EXPECT_THAT(log, HasSubstr("a row was corrupted; it is sent again, 1 of at most 3 times"));
    EXPECT_THAT(log, testing::Not(HasSubstr("3 of at most 3 times")));
}

// Goal: a lane that never answers is reported, and ends its requests at the deadline with the line
// of R7; the other lane's go on. Method: two requests of one chunk, so one on each lane; the first
// lane keeps its call. Oracle: describe_wait()'s words.
TEST(AttentionLoop, ALaneThatNeverAnswersEndsItsRequestsAtTheDeadline) {
    LoopHarness harness({any_rows(0, 5), any_rows(FakeLane::kAll)},
                        {.report_us = 20'000, .timeout_us = 300'000});
    harness.admit(1, kHarnessRows, kNew);
    ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == 1; }));
    harness.admit(2, kHarnessRows, kNew);
    ASSERT_TRUE(harness.until_over(1));
    EXPECT_EQ(harness.request(1).code, Code::kDeadlineExceeded);
    EXPECT_THAT(harness.request(1).text, StartsWith("session 3 (pid "));
    EXPECT_THAT(harness.request(1).text,
                HasSubstr("waits for results of ffn rank 5 (pid 4711): micro-batch 0, layer "
                          "0, flag seen 0, flag expected 1"));
    EXPECT_EQ(harness.lane(0).num_cancelled(), 1);
    ASSERT_FALSE(harness.waits().empty());
    EXPECT_THAT(harness.waits()[0], HasSubstr("of ffn rank 5 (pid 4711)"));
    ASSERT_TRUE(harness.until_over(2));
    EXPECT_EQ(harness.request(2).tokens, expected_tokens(2, kHarnessRows));
}

// Goal: a cancelled request does not wait for an answer that never comes, and its slot stays
// blocked (R4). Method: cancel it while its call is held; the deadlines are far away.
TEST(AttentionLoop, ACancelledRequestEndsAtOnce) {
    LoopHarness harness({any_rows()});
    harness.admit(1, 3, kNew);
    ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == 1; }));
    harness.cancel(1);
    ASSERT_TRUE(harness.until_over(1));
    EXPECT_EQ(harness.request(1).code, Code::kCancelled);
    EXPECT_EQ(harness.lane(0).num_cancelled(), 1);

    harness.admit(2, 3, kNew);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(harness.lane(0).num_started(), 1) << "the slot is not acknowledged yet";
    harness.lane(0).answer(FakeLane::kAll);
    ASSERT_TRUE(harness.until_over(2));
    EXPECT_EQ(harness.request(2).tokens, expected_tokens(2, 3));
}

// Goal: a loop without requests sleeps, whatever becomes of a slot that one of them waited for.
// Method: the only request is cancelled while its call is held, and the slot is acknowledged later.
// Oracle: an idle loop looks around once a second; one that spins does so thousands of times.
TEST(AttentionLoop, AnIdleLoopSleepsThoughASlotBecameFree) {
    LoopHarness harness({any_rows()});
    harness.admit(1, 3, kNew);
    ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == 1; }));
    harness.cancel(1);
    ASSERT_TRUE(harness.until_over(1));
    harness.lane(0).answer();
    const uint64_t num_before = harness.num_waits();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_LT(harness.num_waits() - num_before, 10U);
}

// Goal: a request that finds every slot blocked is reported and ends at its own deadline, not at
// that of the call before; one that comes after the slot is free runs.
// Method: the only lane never answers a first request, which times out; a second one comes while
// the slot is blocked; then the slot is acknowledged and a third one comes.
TEST(AttentionLoop, ARequestThatFindsNoFreeSlotEndsAtItsDeadline) {
    constexpr uint64_t kTimeoutUs = 300'000;
    LoopHarness harness({any_rows(0, 5)}, {.report_us = 20'000, .timeout_us = kTimeoutUs});
    harness.admit(1, 3, kNew);
    ASSERT_TRUE(harness.until_over(1));
    const size_t num_reports = harness.waits().size();
    const uint64_t start_us = schedule::steady_now_us();
    harness.admit(2, 3, kNew);
    ASSERT_TRUE(harness.until_over(2));
    EXPECT_GE(schedule::steady_now_us() - start_us, kTimeoutUs);
    EXPECT_EQ(harness.request(2).code, Code::kDeadlineExceeded);
    EXPECT_THAT(harness.request(2).text, StartsWith("no slot: session 3 (pid "));
    EXPECT_THAT(harness.request(2).text,
                HasSubstr("waits for the acknowledgement of ffn rank 5 (pid 4711)"));
    ASSERT_GT(harness.waits().size(), num_reports);
    EXPECT_THAT(harness.waits()[num_reports], HasSubstr("waits for the acknowledgement of"));
    EXPECT_EQ(harness.lane(0).num_started(), 1) << "nothing was sent over the blocked slot";

    harness.lane(0).answer(FakeLane::kAll);
    harness.admit(3, 3, kNew);
    ASSERT_TRUE(harness.until_over(3));
    EXPECT_EQ(harness.request(3).tokens, expected_tokens(3, 3));
    EXPECT_EQ(harness.waits().back(), "") << "the wait is over";
}

// Goal: no deadline passes while everything is stopped, as in a paused container: neither that of a
// round nor that of a request without a slot. Method: the clock goes on by more than the deadline
// between two looks of the loop. Oracle: no request has ended, and one is answered in full.
TEST(AttentionLoop, WhatWasStoppedHasNotWaited) {
    const HarnessWaits waits;
    LoopHarness harness({any_rows()}, waits);
    harness.admit(1, 3, 1);
    ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == 1; }));
    ASSERT_TRUE(harness.until_quiet());
    LoopHarness::stop_for(2 * waits.timeout_us);
    ASSERT_TRUE(harness.until_quiet());
    EXPECT_FALSE(harness.request(1).is_over) << harness.request(1).text;

    harness.cancel(1);
    ASSERT_TRUE(harness.until_over(1));
    harness.admit(2, 3, kNew);
    ASSERT_TRUE(harness.until_quiet());
    LoopHarness::stop_for(2 * waits.timeout_us);
    ASSERT_TRUE(harness.until_quiet());
    EXPECT_FALSE(harness.request(2).is_over) << harness.request(2).text;
    harness.lane(0).answer(FakeLane::kAll);
    ASSERT_TRUE(harness.until_over(2));
    EXPECT_EQ(harness.request(2).tokens, expected_tokens(2, 3));
}

// Goal: after a round that timed out the wait goes on for as long as its slot is blocked, although
// no request is left. Method: the only request of a lane that never answers times out; then its
// slot is acknowledged. Oracle: the text that says "over" comes after that, and by itself.
TEST(AttentionLoop, AWaitIsNotOverWhileItsSlotStaysBlocked) {
    LoopHarness harness({any_rows(0, 5)}, {.report_us = 20'000, .timeout_us = 100'000});
    harness.admit(1, 3, kNew);
    ASSERT_TRUE(harness.until_over(1));
    EXPECT_EQ(harness.request(1).code, Code::kDeadlineExceeded);
    // Longer than the loop looks around when it is idle.
    const uint64_t num_before = harness.num_waits();
    ASSERT_TRUE(harness.until([&] { return harness.num_waits() >= num_before + 3; }));
    ASSERT_FALSE(harness.waits().empty());
    EXPECT_THAT(harness.waits().back(), HasSubstr("of ffn rank 5 (pid 4711)"));
    harness.lane(0).answer(FakeLane::kAll);
    ASSERT_TRUE(harness.until([&] { return harness.waits().back().empty(); }));
}

// Goal: reports of waits never take the places of tokens and ends in the event ring.
// Method: nobody reads the events, and each call is answered only after its wait was reported.
// Oracle: the loop does not abort, stops scheduling while the ring is short, and loses no token.
TEST(AttentionLoop, ReportsOfWaitsLeaveRoomForTokensAndEnds) {
    LoopHarness harness({any_rows()}, {.report_us = 0}, 0, kHarnessSequences + 4);
    harness.admit(1, 3, kNew);
    for (int32_t call = 1; call <= 12; ++call) {
        ASSERT_TRUE(harness.until_quiet_unread());
        harness.lane(0).answer();
    }
    EXPECT_LT(harness.lane(0).num_started(), 12) << "the ring is short, and nobody has read it";
    harness.lane(0).answer(FakeLane::kAll);
    ASSERT_TRUE(harness.until_over(1));
    EXPECT_EQ(harness.request(1).code, Code::kOk) << harness.request(1).text;
    EXPECT_EQ(harness.request(1).tokens, expected_tokens(1, 3));
    EXPECT_FALSE(harness.waits().empty());
}

// Goal: every admission finds room for its end, whether it is refused, cancelled or finished.
// Method: while nobody reads, more requests end than the ring has places: even ones want more KV
// than there is, odd ones are cancelled, and the first waits for its answer throughout.
// Oracle: one end for each, with its reason, once the events are read.
TEST(AttentionLoop, AdmissionsWaitForRoomForTheirEnds) {
    constexpr uint64_t kLast = 14;
    LoopHarness harness({any_rows()}, {}, 0, kHarnessSequences + 4);
    harness.admit(1, 3, kNew);
    ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == 1; }));
    for (uint64_t id = 2; id <= kLast; ++id) {
        harness.admit(id, 3, id % 2 == 0 ? 2 * kHarnessKvTokens : kNew);
        harness.cancel(id);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (uint64_t id = 2; id <= kLast; ++id) {
        ASSERT_TRUE(harness.until_over(id)) << id;
        const bool is_refused = id % 2 == 0;
        EXPECT_EQ(harness.request(id).code,
                  is_refused ? Code::kResourceExhausted : Code::kCancelled);
        EXPECT_THAT(harness.request(id).text, HasSubstr(is_refused ? "raise kv_tokens" : ""));
    }
    harness.lane(0).answer(FakeLane::kAll);
    ASSERT_TRUE(harness.until_over(1));
    EXPECT_EQ(harness.request(1).tokens, expected_tokens(1, 3));
}

// Goal: lanes of two kinds: a long prompt goes as a whole over its lane, the rest over the other,
// which takes what the first gives back. Oracle: the same tokens as over the other alone.
TEST(AttentionLoop, ALongPromptTakesItsLaneAndComesBackFromIt) {
    for (const bool gives_back : {false, true}) {
        FakeLane::Settings long_lane = long_prompts(FakeLane::kAll);
        if (gives_back) long_lane.refused_call = 2;
        LoopHarness harness({any_rows(FakeLane::kAll), long_lane}, {}, 8);
        harness.admit(1, 30, kNew);
        harness.admit(2, 5, kNew);
        ASSERT_TRUE(harness.until_over(1));
        ASSERT_TRUE(harness.until_over(2));
        // Three layers, or the two until it failed.
        EXPECT_EQ(harness.lane(1).num_started(), gives_back ? 2 : 3);
        EXPECT_EQ(harness.request(1).tokens, expected_tokens(1, 30)) << harness.request(1).text;
        EXPECT_EQ(harness.request(2).tokens, expected_tokens(2, 5)) << harness.request(2).text;
    }
}

// Goal: what the lane of long prompts gives back can be scheduled again, whatever other lanes had
// of the same prompt. Method: while a rank is lost a prompt begins in the other lane; the rank
// comes back while that lane has a chunk of it, and is lost again while the lane of long prompts
// has the next rows, which that lane then refuses. Oracle: the tokens of the request alone; rows
// behind those that came back would wait for ever.
TEST(AttentionLoop, ALongPromptComesBackThoughItBeganInAnotherLane) {
    FakeLane::Settings long_lane = long_prompts();
    long_lane.refused_call = 1;
    LoopHarness harness({any_rows(), long_lane}, {}, 8);
    harness.tell_rank(true);
    harness.admit(1, 60, kNew);
    ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == 1; }));
    harness.tell_rank(false);
    ASSERT_TRUE(harness.until_quiet());
    EXPECT_EQ(harness.lane(1).num_started(), 0) << "the chunk in the other lane comes first";
    harness.lane(0).answer(3);
    ASSERT_TRUE(harness.until([&] { return harness.lane(1).num_started() == 1; }));
    harness.tell_rank(true);
    ASSERT_TRUE(harness.until_quiet());
    EXPECT_EQ(harness.lane(0).num_started(), 3) << "all else is behind what the long lane has";
    harness.lane(0).answer(FakeLane::kAll);
    harness.lane(1).answer();
    ASSERT_TRUE(harness.until_over(1));
    EXPECT_EQ(harness.request(1).tokens, expected_tokens(1, 60)) << harness.request(1).text;
}

// Goal: routing weights that came back with the rows and are not finite end the request.
TEST(AttentionLoop, WeightsThatAreNotFiniteEndTheRequest) {
    FakeLane::Settings poisoned = any_rows(FakeLane::kAll);
    poisoned.poisoned_call = 2;
    LoopHarness harness({poisoned});
    harness.admit(1, 3, kNew);
    ASSERT_TRUE(harness.until_over(1));
    EXPECT_EQ(harness.request(1).code, Code::kInternal);
    EXPECT_EQ(harness.request(1).text,
              "the router's scores are not finite: the checkpoint's weights are bad, or a row "
              "was corrupted on its way between the workers, which row_checksums = true tells");
}

// Goal: of sequences that grow beyond the cache the youngest gives way, and goes on as if it had
// not. Method: six that all come to need a third block where there are 16; the youngest came first.
// No call is answered before all are there: none may be over by then. Oracle: who ends how, and the
// tokens of each alone, those of the youngest in parts.
TEST(AttentionLoop, TheYoungestGivesWayAndGoesOnTheSame) {
    constexpr uint32_t kPrompt = 3;
    constexpr uint32_t kLong = 150;
    constexpr uint64_t kYoungest = 16;
    LoopHarness harness({any_rows(), any_rows()}, {}, 0, 512);
    for (const uint64_t id : {kYoungest, uint64_t{11}, uint64_t{14}, uint64_t{12}, uint64_t{15}}) {
        harness.admit(id, kPrompt, kLong, false, kPrompt);
    }
    harness.admit(13, kPrompt, kLong, false, kPrompt);
    ASSERT_TRUE(harness.until_quiet());
    for (size_t lane = 0; lane < 2; ++lane) harness.lane(lane).answer(FakeLane::kAll);
    for (uint64_t id = 11; id <= kYoungest; ++id) ASSERT_TRUE(harness.until_over(id)) << id;
    for (uint64_t id = 11; id < kYoungest; ++id) {
        EXPECT_EQ(harness.request(id).code, Code::kOk) << harness.request(id).text;
        EXPECT_FALSE(harness.request(id).gave_way) << id;
        EXPECT_EQ(harness.request(id).tokens, expected_tokens(id, kPrompt, kLong)) << id;
    }
    EXPECT_TRUE(harness.request(kYoungest).gave_way);
    EXPECT_EQ(harness.request(kYoungest).code, Code::kCancelled);
    EXPECT_LT(harness.request(kYoungest).tokens.size(), kLong);
    harness.admit(kYoungest, kPrompt, kLong, false, kPrompt);
    ASSERT_TRUE(harness.until_over(kYoungest));
    EXPECT_EQ(harness.request(kYoungest).code, Code::kOk);
    EXPECT_EQ(harness.request(kYoungest).tokens, expected_tokens(kYoungest, kPrompt, kLong));
}

// Goal: whoever gets the blocks of one that gave way goes on at once. Method: four that all come to
// need a fifth block in the same turn, so that nothing is in flight; they are admitted behind one
// that waits, to go in step. Oracle: at no call has the loop waited since they began.
TEST(AttentionLoop, BlocksThatAreGivenAwayAreUsedAtOnce) {
    constexpr uint32_t kLong = 300;
    constexpr uint64_t kYoungest = 4;
    LoopHarness* loop = nullptr;
    std::vector<uint64_t> num_waits;
    FakeLane::Settings settings = any_rows(0);
    settings.on_start = [&] { num_waits.push_back(loop->num_waits()); };
    LoopHarness harness({settings}, {}, 0, 2048);
    loop = &harness;
    harness.admit(9, 1, 1);
    ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == 1; }));
    for (uint64_t id = 1; id <= kYoungest; ++id) harness.admit(id, 1, kLong, false, 1);
    ASSERT_TRUE(harness.until_quiet());
    harness.lane(0).answer(FakeLane::kAll);
    for (uint64_t id = 1; id <= kYoungest; ++id) ASSERT_TRUE(harness.until_over(id)) << id;
    EXPECT_TRUE(harness.request(kYoungest).gave_way);
    EXPECT_EQ(harness.request(1).tokens, expected_tokens(1, 1, kLong));
    EXPECT_EQ(num_waits.at(1), num_waits.back());
}

}  // namespace
}  // namespace afd::daemon
