// SPDX-License-Identifier: Apache-2.0
//
// Blocks of layers that see a window only: all layers, or some of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/daemon/attention/sequence_requests.h"

namespace afd::daemon {
namespace {

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

}  // namespace
}  // namespace afd::daemon
