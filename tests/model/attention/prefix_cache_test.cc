// SPDX-License-Identifier: Apache-2.0
#include "model/attention/prefix_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace afd::model {
namespace {

std::vector<uint32_t> full_block(uint32_t first) {
    std::vector<uint32_t> tokens(kKvBlockTokens, 7);
    tokens[0] = first;
    return tokens;
}

TEST(PrefixCache, FindsWhatStandsBehindTheSameParentOnly) {
    PrefixCache cache(4, true);
    std::vector<int32_t> blocks;
    ASSERT_TRUE(cache.take(2, blocks));
    EXPECT_FALSE(cache.find(PrefixCache::kNoParent, full_block(1)).has_value());
    const auto first = cache.insert(PrefixCache::kNoParent, full_block(1), blocks[0], true);
    const auto second = cache.insert(first, full_block(2), blocks[1], false);
    EXPECT_NE(first, second);
    EXPECT_EQ(cache.find(PrefixCache::kNoParent, full_block(1))->block, blocks[0]);
    EXPECT_FALSE(cache.find(PrefixCache::kNoParent, full_block(2)).has_value());
    EXPECT_FALSE(cache.find(first, full_block(1)).has_value());
    EXPECT_FALSE(cache.find(first, full_block(2))->is_ready);
    cache.mark_ready(blocks[1]);
    EXPECT_TRUE(cache.find(first, full_block(2))->is_ready);
}

TEST(PrefixCache, KeepsReadyBlocksOfNobodyUntilTheirRoomIsNeeded) {
    PrefixCache cache(3, true);
    std::vector<int32_t> blocks;
    ASSERT_TRUE(cache.take(3, blocks));
    const auto first = cache.insert(PrefixCache::kNoParent, full_block(1), blocks[0], true);
    const auto second = cache.insert(first, full_block(2), blocks[1], true);
    cache.insert(second, full_block(3), blocks[2], false);
    EXPECT_EQ(cache.num_free(), 0U);
    cache.release(blocks);
    EXPECT_EQ(cache.num_free(), 3U);
    EXPECT_FALSE(cache.find(second, full_block(3)).has_value()) << "it was never computed";
    EXPECT_TRUE(cache.find(first, full_block(2)).has_value());

    ASSERT_TRUE(cache.take(2, blocks));
    EXPECT_TRUE(cache.find(PrefixCache::kNoParent, full_block(1)).has_value());
    EXPECT_FALSE(cache.find(first, full_block(2)).has_value()) << "children go before parents";
    ASSERT_TRUE(cache.take(1, blocks));
    EXPECT_FALSE(cache.find(PrefixCache::kNoParent, full_block(1)).has_value());
    EXPECT_FALSE(cache.take(1, blocks));
    EXPECT_EQ(blocks.size(), 3U);
}

TEST(PrefixCache, HeldBlocksAreNotGivenToOthers) {
    PrefixCache cache(2, true);
    std::vector<int32_t> owner;
    ASSERT_TRUE(cache.take(1, owner));
    cache.insert(PrefixCache::kNoParent, full_block(1), owner[0], true);
    const int32_t shared = owner[0];
    cache.release(owner);
    cache.hold(shared);
    cache.hold(shared);
    EXPECT_EQ(cache.num_free(), 1U);
    std::vector<int32_t> others;
    EXPECT_FALSE(cache.take(2, others));
    ASSERT_TRUE(cache.take(1, others));
    EXPECT_NE(others[0], shared);
    std::vector<int32_t> holder = {shared};
    cache.release(holder);
    EXPECT_EQ(cache.num_free(), 0U);
    holder = {shared};
    cache.release(holder);
    EXPECT_EQ(cache.num_free(), 1U);
}

TEST(PrefixCache, SwitchedOffItOnlyGivesBlocks) {
    PrefixCache cache(2, false);
    EXPECT_FALSE(cache.is_on());
    std::vector<int32_t> blocks;
    ASSERT_TRUE(cache.take(2, blocks));
    EXPECT_FALSE(cache.take(1, blocks));
    cache.release(blocks);
    EXPECT_EQ(cache.num_free(), 2U);
    EXPECT_FALSE(cache.find(PrefixCache::kNoParent, full_block(1)).has_value());
}

TEST(PrefixCacheDeathTest, BlockGivenBackTwiceIsABug) {
    PrefixCache cache(1, true);
    std::vector<int32_t> blocks;
    ASSERT_TRUE(cache.take(1, blocks));
    std::vector<int32_t> again = blocks;
    cache.release(blocks);
    EXPECT_DEATH(cache.release(again), "nobody holds block 0");
}

// Goal: whoever finds a block finds the tokens of the whole prefix, whatever was evicted, and no
// block has two owners. Method: sequences of few different blocks come and go at random in a small
// cache. Oracle: a note, for each block, of the prefix that its writer put there.
TEST(PrefixCache, BlocksAlwaysHoldThePrefixTheyWereFoundBy) {
    constexpr uint32_t kNumBlocks = 12;
    std::mt19937 random(5);
    PrefixCache cache(kNumBlocks, true);
    std::vector<std::string> written(kNumBlocks);  // The prefix, a letter for each block.
    std::vector<std::vector<int32_t>> sequences;
    std::map<int32_t, int> num_holders;
    size_t num_hits = 0;
    for (int round = 0; round < 20'000; ++round) {
        if (!sequences.empty() && random() % 2 == 0) {
            std::swap(sequences[random() % sequences.size()], sequences.back());
            for (const int32_t block : sequences.back()) --num_holders[block];
            cache.release(sequences.back());
            sequences.pop_back();
            continue;
        }
        std::vector<int32_t> blocks;
        std::string prefix;
        PrefixCache::Serial parent = PrefixCache::kNoParent;
        const size_t length = 1 + random() % 4;
        bool shares = true;
        for (size_t i = 0; i < length; ++i) {
            const char letter = static_cast<char>('a' + random() % 3);
            prefix += letter;
            const auto tokens = full_block(static_cast<uint32_t>(letter));
            const auto found = cache.find(parent, tokens);
            if (found && shares) {
                ASSERT_EQ(written[static_cast<size_t>(found->block)], prefix) << round;
                cache.hold(found->block);
                blocks.push_back(found->block);
                ++num_holders[found->block];
                parent = found->serial;
                ++num_hits;
                continue;
            }
            shares = false;
            if (!cache.take(1, blocks)) break;
            ASSERT_EQ(num_holders[blocks.back()]++, 0) << "somebody else has it";
            written[static_cast<size_t>(blocks.back())] = prefix;
            if (found) {
                parent = found->serial;
            } else {
                parent = cache.insert(parent, tokens, blocks.back(), true);
            }
        }
        sequences.push_back(std::move(blocks));
    }
    EXPECT_GT(num_hits, 1000U);
    for (auto& blocks : sequences) cache.release(blocks);
    EXPECT_EQ(cache.num_free(), kNumBlocks);
}

}  // namespace
}  // namespace afd::model
