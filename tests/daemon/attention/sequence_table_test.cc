// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/sequence_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace afd::daemon {
namespace {

std::unique_ptr<SequenceRequest> request_of(uint64_t id, uint32_t max_total_tokens) {
    auto request = std::make_unique<SequenceRequest>();
    request->sequence_id = id;
    request->tokens = {1, 2, 3};
    request->max_total_tokens = max_total_tokens;
    return request;
}

TEST(SequenceTable, ReservesTheBlocksOfEveryPositionAndTakesThoseOfItsTokens) {
    SequenceTable table(4, 2, 10, 640, false);
    std::unique_ptr<SequenceRequest> first = request_of(1, 65);
    std::unique_ptr<SequenceRequest> second = request_of(2, 512);
    Sequence* sequence = table.admit(first).value();
    EXPECT_EQ(sequence->held.num_reserved, 2U);
    EXPECT_EQ(sequence->held.table.size(), 1U);
    ASSERT_TRUE(table.admit(second).ok());
    EXPECT_EQ(table.num_kv_blocks_used(), 2U);
    EXPECT_EQ(table.find(1), sequence);

    std::unique_ptr<SequenceRequest> third = request_of(3, 1);
    const auto refused = table.admit(third);
    ASSERT_FALSE(refused.ok());
    ASSERT_NE(third, nullptr) << "it stays with the caller";
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    EXPECT_EQ(refused.error().message,
              "1 tokens need 1 KV blocks, 0 of 10 are free; raise kv_tokens");

    EXPECT_EQ(table.release(*sequence)->sequence_id, 1U);
    EXPECT_EQ(table.find(1), nullptr);
    EXPECT_TRUE(table.admit(third).ok());
}

TEST(SequenceTable, ASequenceTakesABlockWithTheFirstTokenThatStandsThere) {
    SequenceTable table(1, 1, 10, 640, false);
    std::unique_ptr<SequenceRequest> request = request_of(1, 200);
    Sequence* sequence = table.admit(request).value();
    for (uint32_t num_tokens = 4; num_tokens <= 200; ++num_tokens) {
        sequence->num_scheduled = num_tokens - 1;
        sequence->request->tokens.push_back(7);
        table.move_on(*sequence);
        ASSERT_EQ(sequence->num_ready(), 1U) << num_tokens;
        ASSERT_EQ(table.num_kv_blocks_used(), (num_tokens + 63) / 64) << num_tokens;
    }
    table.release(*sequence);
    EXPECT_EQ(table.num_kv_blocks_used(), 0U);
}

TEST(SequenceTable, RefusesMoreSequencesThanItHasPlaces) {
    SequenceTable table(1, 1, 10, 64, false);
    std::unique_ptr<SequenceRequest> first = request_of(1, 1);
    std::unique_ptr<SequenceRequest> second = request_of(2, 1);
    ASSERT_TRUE(table.admit(first).ok());
    const auto refused = table.admit(second);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "1 sequences run here already; raise max_sequences");
}

TEST(SequenceTable, StartsAPlaceAnew) {
    SequenceTable table(1, 3, 10, 64, false);
    std::unique_ptr<SequenceRequest> first = request_of(1, 10);
    Sequence* sequence = table.admit(first).value();
    sequence->layer_positions = {3, 2, 1, 0};
    sequence->num_scheduled = 3;
    sequence->is_ending = true;
    table.release(*sequence);
    std::unique_ptr<SequenceRequest> second = request_of(2, 10);
    sequence = table.admit(second).value();
    EXPECT_EQ(sequence->layer_positions, (std::vector<uint32_t>{0, 0, 0, 0}));
    EXPECT_EQ(sequence->num_scheduled, 0U);
    EXPECT_FALSE(sequence->is_ending);
}

// Of the prefix that all of these tests have: a token for each position.
std::unique_ptr<SequenceRequest> prompt_of(uint64_t id, uint32_t num_tokens, uint32_t last = 0) {
    auto request = std::make_unique<SequenceRequest>();
    request->sequence_id = id;
    for (uint32_t i = 0; i < num_tokens; ++i) request->tokens.push_back(i);
    request->tokens.back() += last;
    request->num_prompt_tokens = num_tokens;
    request->max_total_tokens = num_tokens + 10;
    return request;
}

Sequence& admitted(SequenceTable& table, std::unique_ptr<SequenceRequest> request) {
    auto sequence = table.admit(request);
    EXPECT_TRUE(sequence.ok()) << sequence.error().message;
    return *sequence.value();
}

void compute(SequenceTable& table, Sequence& sequence, uint32_t num_positions) {
    sequence.num_scheduled = num_positions;
    for (uint32_t& position : sequence.layer_positions) position = num_positions;
    table.offer_computed(sequence);
}

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

// With room for a prompt of three tokens and no more than that block.
std::unique_ptr<SequenceRequest> growing_request(uint64_t id) {
    std::unique_ptr<SequenceRequest> request = request_of(id, 640);
    request->reserved_tokens = 4;
    return request;
}

// As the loop does at the end of a step that sampled.
void produce(SequenceTable& table, Sequence& sequence) {
    ASSERT_EQ(sequence.num_ready(), 1U) << sequence.num_tokens();
    compute(table, sequence, sequence.num_tokens());
    sequence.request->tokens.push_back(7);
    table.move_on(sequence);
}

TEST(SequenceTableGrowing, ATokenThatFindsNoBlockWaitsUntilTheYoungestHasGivenWay) {
    SequenceTable table(4, 2, 4, 640, false);
    Sequence& middle = admitted(table, growing_request(5));
    Sequence& youngest = admitted(table, growing_request(9));
    Sequence& oldest = admitted(table, growing_request(3));
    for (Sequence* one : {&oldest, &middle, &youngest}) {
        compute(table, *one, 2);
        while (one->num_tokens() < 65) produce(table, *one);
    }
    EXPECT_EQ(oldest.num_ready(), 1U) << "the fourth block";
    EXPECT_EQ(middle.num_ready(), 0U);
    EXPECT_EQ(table.make_room(), &youngest);
    youngest.is_ending = true;
    EXPECT_EQ(table.make_room(), nullptr) << "it is about to go";
    table.release(youngest);
    EXPECT_EQ(table.make_room(), nullptr);
    EXPECT_EQ(middle.num_ready(), 1U);
    EXPECT_EQ(table.num_kv_blocks_used(), 4U);
}

TEST(SequenceTableGrowing, OneThatFitsIsKeptOutByOthersOnly) {
    SequenceTable table(2, 2, 4, 640, false);
    std::unique_ptr<SequenceRequest> large = request_of(2, 640);
    large->reserved_tokens = 64 * 4;
    EXPECT_FALSE(table.fits_alone(*large)) << "nobody is here";
    Sequence& other = admitted(table, growing_request(1));
    const auto refused = table.admit(large);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "256 tokens need 4 KV blocks, 3 of 4 are free; raise kv_tokens");
    EXPECT_TRUE(table.fits_alone(*large));
    large->reserved_tokens = 64 * 5;
    EXPECT_FALSE(table.fits_alone(*large));
    table.release(other);
}

// Blocks that a model with a window of 100 positions in every layer holds at a time.
constexpr uint32_t kWindow = 100;
const auto kHeld = static_cast<uint32_t>(model::held_blocks(UINT32_MAX, kWindow));

TEST(SequenceTableWindow, BlocksBehindItAreExchanged) {
    SequenceTable table(2, 2, kHeld, 64 * 40, false, kWindow);
    Sequence& sequence = admitted(table, prompt_of(1, 2000));
    EXPECT_EQ(sequence.held.table.size(), kHeld);
    EXPECT_EQ(sequence.num_ready(), 64 * kHeld) << "rows behind wait for blocks";
    const std::vector<int32_t> first = sequence.held.table;

    compute(table, sequence, 162);
    table.move_on(sequence);
    EXPECT_EQ(sequence.held.table, first) << "position 162 still sees 63";
    // Position 227 sees 128 and those behind.
    compute(table, sequence, 227);
    table.move_on(sequence);
    EXPECT_EQ(sequence.held.table.size(), kHeld + 2);
    EXPECT_EQ(table.num_kv_blocks_used(), kHeld);
    EXPECT_EQ(sequence.num_ready(), 64 * (kHeld + 2) - 227);
    // What it has left serves it again, behind.
    EXPECT_TRUE(std::is_permutation(
        sequence.held.table.begin() + 2, sequence.held.table.end(), first.begin(), first.end()));

    while (sequence.layer_positions.back() < 1999) {
        const uint32_t count = std::min(sequence.num_ready(), 200u);
        compute(table, sequence, std::min(sequence.num_scheduled + count, 1999u));
        table.move_on(sequence);
        EXPECT_LE(table.num_kv_blocks_used(), kHeld);
    }
    EXPECT_EQ(sequence.held.table.size(), 32u) << "none beyond its last token";
    EXPECT_EQ(sequence.num_ready(), 1u);
    EXPECT_TRUE(sequence.is_decoding());
    EXPECT_LT(table.num_kv_blocks_used(), kHeld);
    table.release(sequence);
    EXPECT_EQ(table.num_kv_blocks_used(), 0u);
}

TEST(SequenceTableWindow, APrefixIsSharedAndItsBlocksAreNotWrittenAgain) {
    SequenceTable table(2, 2, 2 * kHeld + 20, 64 * 40, true, kWindow);
    Sequence& first = admitted(table, prompt_of(1, 1500));
    while (first.layer_positions.back() < 1500) {
        compute(table, first, first.num_scheduled + std::min(first.num_ready(), 100u));
        table.move_on(first);
    }
    const std::vector<int32_t> blocks = first.held.table;
    Sequence& second = admitted(table, prompt_of(2, 1500, 5));
    EXPECT_EQ(second.num_cached_tokens, 1472u);
    EXPECT_EQ(second.num_ready(), 28u);
    // Of the 23 blocks it holds those that its rows see, 1373 to 1499.
    EXPECT_EQ(second.held.num_left, 21u);
    for (uint32_t i = 21; i < 23; ++i) EXPECT_EQ(second.held.table[i], blocks[i]);
    const uint32_t own = first.held.num_left;
    for (uint32_t i = 23; i < second.held.table.size(); ++i) {
        EXPECT_EQ(std::count(blocks.begin() + own, blocks.end(), second.held.table[i]), 0) << i;
    }
    table.release(first);
    table.release(second);
    EXPECT_EQ(table.num_kv_blocks_used(), 0u);
}

TEST(SequenceTableWindow, WhoWaitsForAPrefixFollowsItAcrossTheWindow) {
    SequenceTable table(2, 2, 2 * kHeld + 20, 64 * 40, true, kWindow);
    Sequence& first = admitted(table, prompt_of(1, 1500));
    Sequence& second = admitted(table, prompt_of(2, 1500, 5));
    EXPECT_TRUE(second.awaits_prefix);
    while (first.layer_positions.back() < 1500) {
        compute(table, first, first.num_scheduled + std::min(first.num_ready(), 100u));
        table.move_on(first);
        table.look_for_prefixes();
        EXPECT_LE(table.num_kv_blocks_used(), 2 * kHeld);
    }
    while (second.layer_positions.back() < 1500) {
        ASSERT_GT(second.num_ready(), 0u) << second.layer_positions.back();
        compute(table, second, second.num_scheduled + std::min(second.num_ready(), 100u));
        table.move_on(second);
    }
    EXPECT_GT(second.num_cached_tokens, 500u);
    table.release(first);
    table.release(second);
    EXPECT_EQ(table.num_kv_blocks_used(), 0u);
}

// A model with that window in some of its layers only: these have blocks of their own.
const WindowedBlocks kTwo = {.num_blocks = 2 * kHeld, .window = kWindow};

// Goal: the windowed layers' blocks go back as the window moves on; the others stay to the end.
TEST(SequenceTableMixed, OnlyTheWindowedBlocksAreExchanged) {
    SequenceTable table(2, 2, 80, 64 * 40, false, 0, kTwo);
    Sequence& sequence = admitted(table, prompt_of(1, 2000));
    EXPECT_EQ(sequence.held.table.size(), 32u) << "of all its tokens";
    EXPECT_EQ(sequence.windowed.table.size(), kHeld);
    EXPECT_EQ(sequence.num_ready(), 64 * kHeld) << "rows behind wait for windowed blocks";
    const std::vector<int32_t> blocks = sequence.held.table;

    while (sequence.layer_positions.back() < 1999) {
        const uint32_t count = std::min(sequence.num_ready(), 200u);
        ASSERT_GT(count, 0u) << sequence.layer_positions.back();
        compute(table, sequence, std::min(sequence.num_scheduled + count, 1999u));
        table.move_on(sequence);
        EXPECT_EQ(table.num_kv_blocks_used(), 32u);
        EXPECT_LE(table.num_windowed_blocks_used(), kHeld);
    }
    EXPECT_EQ(sequence.held.table, blocks);
    EXPECT_EQ(sequence.windowed.table.size(), 32u) << "none beyond its last token";
    // Position 1999 sees 1900 and those behind; it may go on to 2009.
    EXPECT_EQ(table.num_windowed_blocks_used(), 32u - 1900 / 64);
    EXPECT_TRUE(sequence.is_decoding());
    table.release(sequence);
    EXPECT_EQ(table.num_kv_blocks_used(), 0u);
    EXPECT_EQ(table.num_windowed_blocks_used(), 0u);
}

TEST(SequenceTableMixed, AShortSequenceHoldsAsMuchOfBoth) {
    SequenceTable table(2, 2, 80, 64 * 40, false, 0, kTwo);
    Sequence& sequence = admitted(table, prompt_of(1, 100));
    EXPECT_EQ(sequence.num_ready(), 100u);
    EXPECT_EQ(table.num_kv_blocks_used(), 2u);
    EXPECT_EQ(table.num_windowed_blocks_used(), 2u);
}

// Computes all of the sequence, as far as it goes.
void compute_all(SequenceTable& table, Sequence& sequence, uint32_t num_positions) {
    while (sequence.layer_positions.back() < num_positions) {
        ASSERT_GT(sequence.num_ready(), 0u) << sequence.layer_positions.back();
        const uint32_t count = std::min(sequence.num_ready(), 100u);
        compute(table, sequence, std::min(sequence.num_scheduled + count, num_positions));
        table.move_on(sequence);
        table.look_for_prefixes();
    }
}

TEST(SequenceTableMixed, APrefixHoldsWhatItsNextTokenSees) {
    SequenceTable table(2, 2, 80, 64 * 40, true, 0, kTwo);
    Sequence& first = admitted(table, prompt_of(1, 1500));
    compute_all(table, first, 1500);
    const HeldBlocks whole = first.held;
    const HeldBlocks seen = first.windowed;
    Sequence& second = admitted(table, prompt_of(2, 1500, 5));
    EXPECT_EQ(second.num_cached_tokens, 1472u);
    EXPECT_EQ(second.num_ready(), 28u);
    for (uint32_t i = 0; i < 23; ++i) EXPECT_EQ(second.held.table[i], whole.table[i]) << i;
    EXPECT_NE(second.held.table[23], whole.table[23]);
    // Its rows see 1373 to 1499.
    EXPECT_EQ(second.windowed.num_left, 21u);
    for (uint32_t i = 21; i < 23; ++i) EXPECT_EQ(second.windowed.table[i], seen.table[i]) << i;
    EXPECT_NE(second.windowed.table[23], seen.table[23]) << "what it writes is its own";
    compute_all(table, second, 1500);
    table.release(first);
    table.release(second);
    EXPECT_EQ(table.num_kv_blocks_used(), 0u);
    EXPECT_EQ(table.num_windowed_blocks_used(), 0u);
}

// Goal: where the windowed blocks at the end of a prefix were given to somebody else, nothing of it
// is taken that a token could not see through. Method: room for one sequence's windowed blocks, so
// that a second one throws out what the first has left, and then prompts that leave the first one's
// in the middle, and at its end.
TEST(SequenceTableMixed, APrefixEndsWhereItsWindowIsStillThere) {
    const WindowedBlocks kOne = {.num_blocks = kHeld, .window = kWindow};
    SequenceTable table(2, 2, 80, 64 * 40, true, 0, kOne);
    Sequence& first = admitted(table, prompt_of(1, 1500));
    compute_all(table, first, 1500);
    table.release(first);

    Sequence& middle = admitted(table, prompt_of(2, 300, 5));
    EXPECT_EQ(middle.num_cached_tokens, 0u) << "its window was thrown out, the rest is there";
    EXPECT_FALSE(middle.awaits_prefix);
    EXPECT_EQ(middle.num_ready(), 300u);
    compute_all(table, middle, 300);
    table.release(middle);
    Sequence& again = admitted(table, prompt_of(3, 300, 6));
    EXPECT_EQ(again.num_cached_tokens, 256u) << "computed again, it is offered again";
    table.release(again);

    Sequence& end = admitted(table, prompt_of(4, 1500, 7));
    EXPECT_EQ(end.num_cached_tokens, 1472u) << "the holes before the window do not matter";
    compute_all(table, end, 1500);
    table.release(end);
    EXPECT_EQ(table.num_windowed_blocks_used(), 0u);
}

TEST(SequenceTableMixed, WhoWaitsForAPrefixFollowsIt) {
    SequenceTable table(2, 2, 80, 64 * 40, true, 0, kTwo);
    Sequence& first = admitted(table, prompt_of(1, 1500));
    Sequence& second = admitted(table, prompt_of(2, 1500, 5));
    EXPECT_TRUE(second.awaits_prefix);
    compute_all(table, first, 1500);
    EXPECT_FALSE(second.awaits_prefix);
    EXPECT_EQ(second.num_cached_tokens, 1472u);
    EXPECT_LE(table.num_windowed_blocks_used(), 2 * kHeld);
    compute_all(table, second, 1500);
    table.release(second);
    table.release(first);
    EXPECT_EQ(table.num_kv_blocks_used(), 0u);
    EXPECT_EQ(table.num_windowed_blocks_used(), 0u);
}

// Goal: no order of events makes a running sequence lack a block. Method: sequences that begin
// alike come at random, as many as their reservations allow, compute some of what is ready, produce
// tokens, end early and are cancelled, in tables of each kind that have little room. Oracle: take()
// itself, which dies of a block too few; who has rows to compute gets some ready in the end; all is
// free at the end.
class SequenceTableAtRandom : public testing::TestWithParam<std::tuple<bool, bool, bool>> {
  protected:
    static constexpr uint32_t kContext = 64 * 24;

    uint32_t draw(uint32_t end) { return static_cast<uint32_t>(random_()) % end; }

    void come() {
        const uint32_t num_prompt = 1 + draw(900);
        std::unique_ptr<SequenceRequest> request = prompt_of(next_id_, num_prompt, draw(3));
        // Few different beginnings.
        request->tokens[0] = draw(2);
        request->max_total_tokens = std::min(num_prompt + 1 + draw(400), kContext);
        if (table_.admit(request).ok()) ++next_id_;
    }

    void go_on(Sequence& sequence) {
        if (const uint32_t num_ready = sequence.num_ready()) {
            const uint32_t count = 1 + draw(num_ready);
            compute(table_, sequence, sequence.num_scheduled + count);
            const bool is_last = sequence.num_scheduled == sequence.num_tokens();
            if (is_last && sequence.num_tokens() + 1 < sequence.request->max_total_tokens) {
                sequence.request->tokens.push_back(draw(3));
            } else if (is_last) {
                sequence.is_ending = true;
            }
        }
        table_.move_on(sequence);
        if (draw(100) == 0) sequence.is_ending = true;
        if (sequence.is_ending) table_.release(sequence);
    }

    const bool is_windowed_ = std::get<1>(GetParam());
    const bool is_mixed_ = std::get<2>(GetParam());
    std::mt19937 random_{7};
    uint64_t next_id_ = 1;
    SequenceTable table_{6,
                         2,
                         40,
                         kContext,
                         std::get<0>(GetParam()),
                         is_windowed_ ? kWindow : 0,
                         is_mixed_ ? WindowedBlocks{40, kWindow} : WindowedBlocks{}};
};

TEST_P(SequenceTableAtRandom, NobodyLacksABlock) {
    for (int round = 0; round < 30'000; ++round) {
        if (draw(8) == 0) come();
        if (table_.active().empty()) continue;
        table_.look_for_prefixes();
        const auto active = table_.active();
        const bool has_work = std::any_of(
            active.begin(), active.end(), [](const Sequence* one) { return one->num_ready() > 0; });
        ASSERT_TRUE(has_work) << "round " << round << ": all of " << active.size() << " wait";
        go_on(*active[draw(static_cast<uint32_t>(active.size()))]);
    }
    while (!table_.active().empty()) table_.release(*table_.active()[0]);
    EXPECT_EQ(table_.num_kv_blocks_used(), 0U);
    EXPECT_EQ(table_.num_windowed_blocks_used(), 0U);
    EXPECT_GT(next_id_, 100U);
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         SequenceTableAtRandom,
                         testing::Values(std::tuple(false, false, false),
                                         std::tuple(true, false, false),
                                         std::tuple(false, true, false),
                                         std::tuple(true, true, false),
                                         std::tuple(false, false, true),
                                         std::tuple(true, false, true)));

}  // namespace
}  // namespace afd::daemon
