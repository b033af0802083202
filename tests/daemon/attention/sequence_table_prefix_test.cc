// SPDX-License-Identifier: Apache-2.0
//
// Prefixes that sequences share.
#include <gtest/gtest.h>

#include <vector>

#include "tests/daemon/attention/sequence_requests.h"

namespace afd::daemon {
namespace {

TEST(SequenceTablePrefix, ComputedBlocksAreTakenByWhoComesLater) {
    SequenceTable table(4, 2, 20, 640, true);
    Sequence& first = admitted(table, prompt_of(1, 200));
    EXPECT_EQ(first.num_ready(), 200U);
    compute(table, first, 200);
    Sequence& second = admitted(table, prompt_of(2, 200, 5));
    EXPECT_EQ(second.num_cached_tokens, 192U);
    EXPECT_EQ(second.num_ready(), 8U);
    EXPECT_EQ(second.layer_positions, (std::vector<uint32_t>{192, 192, 192}));
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(second.held.table[i], first.held.table[i]);
    EXPECT_NE(second.held.table[3], first.held.table[3]);
    EXPECT_EQ(table.num_kv_blocks_used(), 5U);
    // The last token is computed in any case: it yields the next one.
    EXPECT_EQ(admitted(table, prompt_of(3, 192)).num_cached_tokens, 128U);
    table.release(first);
    EXPECT_EQ(admitted(table, prompt_of(4, 193)).num_cached_tokens, 192U) << "they outlive it";
}

TEST(SequenceTablePrefix, WhoComesMeanwhileWaitsAndGoesOnWhenItIsReady) {
    SequenceTable table(4, 2, 20, 640, true);
    Sequence& first = admitted(table, prompt_of(1, 200));
    Sequence& second = admitted(table, prompt_of(2, 200, 5));
    EXPECT_TRUE(second.awaits_prefix);
    EXPECT_EQ(second.num_ready(), 0U);
    compute(table, first, 128);
    table.look_for_prefixes();
    EXPECT_TRUE(second.awaits_prefix) << "the third block is on its way";
    compute(table, first, 200);
    table.look_for_prefixes();
    EXPECT_FALSE(second.awaits_prefix);
    EXPECT_EQ(second.num_ready(), 8U);
    EXPECT_EQ(second.held.table[2], first.held.table[2]);
    EXPECT_EQ(table.num_kv_blocks_used(), 5U);
}

TEST(SequenceTablePrefix, EndOfTheOneThatIsWaitedForLetsTheNextOneCompute) {
    SequenceTable table(4, 2, 20, 640, true);
    Sequence& first = admitted(table, prompt_of(1, 200));
    Sequence& second = admitted(table, prompt_of(2, 200, 5));
    Sequence& third = admitted(table, prompt_of(3, 200, 6));
    compute(table, first, 100);
    first.is_ending = true;
    table.release(first);
    table.look_for_prefixes();
    EXPECT_EQ(second.num_ready(), 136U) << "behind the block that was ready";
    EXPECT_TRUE(third.awaits_prefix) << "now the second one computes";
    compute(table, second, 200);
    table.look_for_prefixes();
    EXPECT_EQ(third.num_ready(), 8U);
}

// A step of many rows goes through the head in tiles: its first sequences may have sampled their
// last token, and end, when the step is offered.
TEST(SequenceTablePrefix, WhoHasItsLastTokenOffersWhatItHasAndWhoFailsDoesNot) {
    for (const Code code : {Code::kOk, Code::kCancelled}) {
        SequenceTable table(4, 2, 20, 640, true);
        Sequence& first = admitted(table, prompt_of(1, 200));
        first.is_ending = true;
        first.end_code = code;
        compute(table, first, 200);
        table.release(first);
        EXPECT_EQ(admitted(table, prompt_of(2, 200, 5)).num_cached_tokens,
                  code == Code::kOk ? 192U : 0U);
    }
}

TEST(SequenceTablePrefix, ProducedTokensCount) {
    SequenceTable table(4, 2, 20, 640, true);
    std::unique_ptr<SequenceRequest> request = prompt_of(1, 60);
    request->max_total_tokens = 200;
    Sequence& first = admitted(table, std::move(request));
    for (uint32_t i = 60; i < 140; ++i) first.request->tokens.push_back(i);
    table.move_on(first);
    compute(table, first, 130);
    EXPECT_EQ(admitted(table, prompt_of(2, 150)).num_cached_tokens, 128U);
}

TEST(SequenceTablePrefix, PromptLogprobsAreAlwaysComputed) {
    SequenceTable table(4, 2, 20, 640, true);
    compute(table, admitted(table, prompt_of(1, 200)), 200);
    std::unique_ptr<SequenceRequest> request = prompt_of(2, 200);
    request->prompt_logprobs = true;
    EXPECT_EQ(admitted(table, std::move(request)).num_cached_tokens, 0U);
}

// What is kept for others is room that whoever needs it gets, and what one is about to share is not
// thrown out for the rest of its own blocks.
TEST(SequenceTablePrefix, AdmissionTakesWhatItSharesBeforeItMakesRoom) {
    SequenceTable table(4, 2, 4, 640, true);
    Sequence& first = admitted(table, prompt_of(1, 129));
    compute(table, first, 129);
    table.release(first);
    EXPECT_EQ(table.num_kv_blocks_used(), 0U);
    Sequence& second = admitted(table, prompt_of(2, 246));
    EXPECT_EQ(second.num_cached_tokens, 128U);
    EXPECT_EQ(second.held.table.size(), 4U);
    table.release(second);
    std::unique_ptr<SequenceRequest> other = prompt_of(3, 200);
    other->tokens[0] = 99;
    EXPECT_EQ(admitted(table, std::move(other)).num_cached_tokens, 0U);
}

// Goal: what a conversation has computed is there when it comes back, however much its requests may
// produce. Method: two conversations take turns, each request of which reserves all there is.
// Oracle: each turn finds the full blocks of the one before it.
TEST(SequenceTablePrefix, ReservationsThatAreNotUsedThrowOutNothing) {
    constexpr uint32_t kContext = 64 * 20;
    SequenceTable table(4, 2, 20, kContext, true);
    std::vector<std::vector<uint32_t>> texts(2);
    for (uint32_t turn = 0; turn < 4; ++turn) {
        for (uint32_t who = 0; who < 2; ++who) {
            std::vector<uint32_t>& text = texts[who];
            const auto num_before = static_cast<uint32_t>(text.size());
            text.resize(num_before + 50, 1000 + who);
            auto request = std::make_unique<SequenceRequest>();
            request->sequence_id = 2 * turn + who;
            request->tokens = text;
            request->max_total_tokens = kContext;
            Sequence& sequence = admitted(table, std::move(request));
            // The last token that it produced was never computed.
            const uint32_t num_computed = num_before == 0 ? 0 : num_before - 1;
            EXPECT_EQ(sequence.num_cached_tokens, num_computed / 64 * 64)
                << "turn " << turn << " of " << who;
            for (uint32_t i = 0; i < 80; ++i) {
                compute(table, sequence, sequence.num_tokens());
                sequence.request->tokens.push_back(i);
                table.move_on(sequence);
            }
            text = sequence.request->tokens;
            table.release(sequence);
        }
    }
}

}  // namespace
}  // namespace afd::daemon
