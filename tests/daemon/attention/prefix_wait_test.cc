// SPDX-License-Identifier: Apache-2.0

// Requests that begin alike, where one waits for what another computes, over lanes that do not
// answer: whoever waits for nobody that computes waits for a slot, and has a deadline (R7).

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "daemon/attention/attention_loop.h"
#include "tests/daemon/attention/loop_harness.h"

namespace afd::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Their prompts are equal.
constexpr uint64_t kFirst = 1;
constexpr uint64_t kSecond = kFirst + kHarnessPrompts;
constexpr uint64_t kThird = kSecond + kHarnessPrompts;
constexpr uint64_t kOtherPrompt = 2;

constexpr uint32_t kShortPrompt = model::kKvBlockTokens + 6;      // Of which they share one block,
constexpr uint32_t kLongPrompt = 4 * model::kKvBlockTokens + 44;  // or four.
constexpr int32_t kNumLayers = 3;

// The most that one turn of the loop adds to the time that is waited; so many such turns take
// longer than the default deadline, and so do these of a call in each layer.
constexpr uint64_t kTurnUs = 1'000'000;
constexpr int32_t kTurnsBeyondDeadline = 69;
constexpr int32_t kTurnsOfCall = 25;

LoopHarness sharing(const std::vector<FakeLane::Settings>& lanes,
                    const HarnessWaits& waits,
                    uint32_t long_prompt_threshold = 0) {
    return LoopHarness(lanes, waits, long_prompt_threshold, 256, size_t{1} << 29, true);
}

// The first request computes what the two others wait for.
void admit_three(LoopHarness& harness, uint32_t num_prompt_tokens) {
    harness.admit(kFirst, num_prompt_tokens, kNew);
    ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == 1; }));
    harness.admit(kSecond, num_prompt_tokens, kNew);
    harness.admit(kThird, num_prompt_tokens, kNew);
    ASSERT_TRUE(harness.until_quiet());
}

// A turn of a loop that waits: one that was woken looks at the clock. False: see until().
bool pass_turn(LoopHarness& harness) {
    const uint64_t num_before = harness.num_waits();
    LoopHarness::stop_for(kTurnUs);
    harness.cancel(kOtherPrompt);  // It does not run, or not any more.
    return harness.until([&] { return harness.num_waits() > num_before; });
}

// Turns until `done()`; false if it takes more of them than all deadlines here.
template <typename Done>
bool pass_turns_until(LoopHarness& harness, const Done& done) {
    for (int32_t i = 0; i < 10 * kTurnsBeyondDeadline && !done(); ++i) {
        if (!pass_turn(harness)) return false;
    }
    return done();
}

// Goal: requests that wait for the prefix of one that timed out end at a deadline of their own, and
// all at the same: none begins to wait when another has ended. Method: the only lane never answers.
// Oracle: the loop's clock since the call began, which two deadlines follow; when the first of both
// has ended the other has in the same turn.
TEST(PrefixWait, EndsAtItsDeadlineWhereNobodyCanCompute) {
    const HarnessWaits waits;
    uint64_t started_us = 0;
    FakeLane::Settings silent = any_rows(0, 5);
    silent.on_start = [&] { started_us = LoopHarness::now_us(); };
    LoopHarness harness = sharing({silent}, waits);
    admit_three(harness, kShortPrompt);
    ASSERT_TRUE(pass_turns_until(harness, [&] { return harness.request(kFirst).is_over; }));
    EXPECT_EQ(harness.request(kFirst).code, Code::kDeadlineExceeded);
    ASSERT_TRUE(pass_turns_until(harness, [&] {
        return harness.request(kSecond).is_over || harness.request(kThird).is_over;
    }));
    EXPECT_GE(LoopHarness::now_us() - started_us, 2 * waits.timeout_us);
    ASSERT_TRUE(pass_turn(harness));
    for (const uint64_t id : {kSecond, kThird}) {
        EXPECT_TRUE(harness.request(id).is_over) << id;
        EXPECT_EQ(harness.request(id).code, Code::kDeadlineExceeded);
        EXPECT_THAT(harness.request(id).text, StartsWith("no slot: session 3 (pid "));
        EXPECT_THAT(harness.request(id).text,
                    HasSubstr("waits for the acknowledgement of ffn rank 5 (pid 4711)"));
    }
    EXPECT_EQ(harness.lane(0).num_started(), 1) << "nothing was sent over the blocked slot";
}

// Goal: while only such requests are left their wait is reported, and a slot that comes free before
// their deadline is used. Method: the one that they wait for is cancelled, and its slot
// acknowledged when the wait was reported. Oracle: the tokens of each alone.
TEST(PrefixWait, GoesOnWithASlotThatComesFree) {
    LoopHarness harness = sharing({any_rows(0, 5)}, {.report_us = 20'000});
    admit_three(harness, kShortPrompt);
    harness.cancel(kFirst);
    ASSERT_TRUE(harness.until_over(kFirst));
    ASSERT_TRUE(harness.until([&] {
        return !harness.waits().empty() &&
               harness.waits().back().find("waits for the acknowledgement of ffn rank 5") !=
                   std::string::npos;
    }));
    EXPECT_EQ(harness.lane(0).num_started(), 1);
    harness.lane(0).answer(FakeLane::kAll);
    for (const uint64_t id : {kSecond, kThird}) {
        ASSERT_TRUE(harness.until_over(id)) << id;
        EXPECT_EQ(harness.request(id).tokens, expected_tokens(id, kShortPrompt))
            << harness.request(id).text;
    }
    EXPECT_EQ(harness.waits().back(), "") << "the wait is over";
}

// Goal: a request has no deadline while another computes its prefix, however long that takes, and
// although another slot is blocked. Method: the second lane, which takes any rows or long prompts
// only, has a micro-batch of the first request; its calls are answered slowly, each before its own
// deadline and in all behind it. Oracle: the tokens of each alone.
TEST(PrefixWait, HasNoDeadlineWhileAnotherComputes) {
    for (const bool is_long : {false, true}) {
        const FakeLane::Settings slow = is_long ? long_prompts() : any_rows();
        LoopHarness harness = sharing({any_rows(0, 5), slow}, {}, is_long ? 8 : 0);
        harness.admit(kOtherPrompt, 3, kNew);
        ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == 1; }));
        harness.cancel(kOtherPrompt);
        ASSERT_TRUE(harness.until_over(kOtherPrompt));

        harness.admit(kFirst, kShortPrompt, kNew);
        ASSERT_TRUE(harness.until([&] { return harness.lane(1).num_started() == 1; }));
        harness.admit(kSecond, kShortPrompt, kNew);
        ASSERT_TRUE(harness.until_quiet());
        for (int32_t call = 1; call <= kNumLayers; ++call) {
            ASSERT_TRUE(harness.until([&] { return harness.lane(1).num_started() == call; }));
            for (int32_t i = 0; i < kTurnsOfCall; ++i) ASSERT_TRUE(pass_turn(harness));
            if (call < kNumLayers) harness.lane(1).answer();
        }
        ASSERT_TRUE(harness.until_quiet());
        EXPECT_FALSE(harness.request(kFirst).is_over) << harness.request(kFirst).text;
        EXPECT_FALSE(harness.request(kSecond).is_over) << harness.request(kSecond).text;

        harness.lane(0).answer(FakeLane::kAll);
        harness.lane(1).answer(FakeLane::kAll);
        for (const uint64_t id : {kFirst, kSecond}) {
            ASSERT_TRUE(harness.until_over(id)) << id;
            EXPECT_EQ(harness.request(id).tokens, expected_tokens(id, kShortPrompt))
                << harness.request(id).text;
        }
    }
}

// Goal: a wait that was over has not gone on while the loop was too busy to see that. Method: the
// slot of a cancelled request keeps two waiting; then it comes free, and the second computes in a
// loop that never waits, for longer than the deadline, until the slot is blocked again. Oracle: the
// third, which still waits for its prefix, does not end; the tokens of each alone.
TEST(PrefixWait, BeginsAnewWhenAnotherHasComputed) {
    constexpr int32_t kBlocked =
        1 + (kTurnsBeyondDeadline / kNumLayers) * kNumLayers;  // Ends a chunk.
    LoopHarness* loop = nullptr;
    int32_t num_calls = 0;
    FakeLane::Settings settings = any_rows();
    settings.on_start = [&] {
        if (++num_calls > 1) LoopHarness::stop_for(kTurnUs);
        if (num_calls == kBlocked) loop->lane(0).acknowledge(0);
    };
    LoopHarness harness = sharing({settings}, {});
    loop = &harness;
    admit_three(harness, kLongPrompt);
    harness.cancel(kFirst);
    ASSERT_TRUE(harness.until_over(kFirst));
    ASSERT_TRUE(harness.until_quiet());
    harness.lane(0).answer(FakeLane::kAll);
    ASSERT_TRUE(harness.until([&] { return harness.lane(0).num_started() == kBlocked; }));
    ASSERT_TRUE(harness.until_quiet());
    for (const uint64_t id : {kSecond, kThird}) {
        EXPECT_FALSE(harness.request(id).is_over) << id << ": " << harness.request(id).text;
    }
    harness.lane(0).acknowledge(FakeLane::kAll);
    for (const uint64_t id : {kSecond, kThird}) {
        ASSERT_TRUE(harness.until_over(id)) << id;
        EXPECT_EQ(harness.request(id).tokens, expected_tokens(id, kLongPrompt))
            << harness.request(id).text;
    }
}

}  // namespace
}  // namespace afd::daemon
