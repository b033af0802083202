// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace afd::model {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ModelConfig small_config() {
    ModelConfig config;
    config.num_layers = 3;
    config.kv_lora_rank = 16;
    config.qk_rope_head_dim = 8;
    return config;
}

TEST(BlockAllocator, ReservesWholeBlocksOnce) {
    BlockAllocator allocator(4);
    std::vector<int32_t> a;
    std::vector<int32_t> b;
    ASSERT_TRUE(allocator.reserve(65, a));
    ASSERT_TRUE(allocator.reserve(128, b));
    EXPECT_THAT(a, SizeIs(2));
    EXPECT_THAT(b, SizeIs(2));
    std::set<int32_t> all(a.begin(), a.end());
    all.insert(b.begin(), b.end());
    EXPECT_THAT(all, SizeIs(4));
    EXPECT_EQ(allocator.num_free(), 0u);
}

TEST(BlockAllocator, RefusesWithoutTakingAnything) {
    BlockAllocator allocator(3);
    std::vector<int32_t> blocks;
    EXPECT_FALSE(allocator.reserve(3 * 64 + 1, blocks));
    EXPECT_THAT(blocks, IsEmpty());
    EXPECT_EQ(allocator.num_free(), 3u);
    EXPECT_FALSE(allocator.reserve(UINT64_MAX, blocks));
    EXPECT_TRUE(allocator.reserve(3 * 64, blocks));
}

TEST(BlockAllocator, ReleasedBlocksServeOthers) {
    BlockAllocator allocator(2);
    std::vector<int32_t> blocks;
    for (int round = 0; round < 100; ++round) {
        ASSERT_TRUE(allocator.reserve(128, blocks));
        allocator.release(blocks);
        EXPECT_THAT(blocks, IsEmpty());
    }
    EXPECT_EQ(allocator.num_free(), 2u);
}

TEST(BlockAllocatorDeathTest, ABlockReleasedTwiceIsABug) {
    BlockAllocator allocator(2);
    std::vector<int32_t> blocks;
    ASSERT_TRUE(allocator.reserve(64, blocks));
    std::vector<int32_t> copy = blocks;
    allocator.release(blocks);
    EXPECT_DEATH(allocator.release(copy), "is not in use");
}

TEST(KvCache, RowsFollowTheBlocksOfASequence) {
    const std::vector<int32_t> blocks = {5, 2};
    EXPECT_EQ(cache_row(blocks, 0), 320);
    EXPECT_EQ(cache_row(blocks, 63), 383);
    EXPECT_EQ(cache_row(blocks, 64), 128);
    EXPECT_EQ(cache_row(blocks, 100), 164);
}

TEST(KvCache, LayersAreZeroAndDoNotOverlap) {
    const ModelConfig config = small_config();
    auto cache = KvCache::create(config, 65);
    ASSERT_TRUE(cache.ok()) << cache.error().message;
    EXPECT_EQ(cache.value().num_blocks(), 2u);
    EXPECT_EQ(KvCache::bytes_per_token(config), 3u * 24 * 2);
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        const ops::LatentCache latent = cache.value().layer(layer);
        ASSERT_EQ(latent.num_slots, 128u);
        for (size_t i = 0; i < 128 * 16; ++i) {
            ASSERT_EQ(latent.ckv[i].bits, 0);
            latent.ckv[i].bits = static_cast<uint16_t>(1 + 2 * layer);
        }
        for (size_t i = 0; i < 128 * 8; ++i) {
            ASSERT_EQ(latent.kr[i].bits, 0);
            latent.kr[i].bits = static_cast<uint16_t>(2 + 2 * layer);
        }
    }
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        const ops::LatentCache latent = cache.value().layer(layer);
        for (size_t i = 0; i < 128 * 16; ++i) ASSERT_EQ(latent.ckv[i].bits, 1 + 2 * layer);
        for (size_t i = 0; i < 128 * 8; ++i) ASSERT_EQ(latent.kr[i].bits, 2 + 2 * layer);
    }
}

TEST(KvCache, SaysHowManyBytesAreMissing) {
    const auto cache = KvCache::create(small_config(), uint64_t{1} << 50);
    ASSERT_FALSE(cache.ok());
    EXPECT_EQ(cache.error().code, Code::kResourceExhausted);
    EXPECT_THAT(cache.error().message,
                HasSubstr("a KV cache of 1125899906842624 tokens, 144 bytes each"));
}

}  // namespace
}  // namespace afd::model
