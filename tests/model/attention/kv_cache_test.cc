// SPDX-License-Identifier: Apache-2.0
#include "model/attention/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <vector>

namespace afd::model {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr KvShape kShape = {.num_layers = 3, .layer_bytes_per_token = 48};

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

// Method: writes a number of its own into every byte of a layer's cache, then reads all back.
TEST(KvCache, LayersAreZeroAndDoNotOverlap) {
    auto cache = KvCache::create(kShape, 65);
    ASSERT_TRUE(cache.ok()) << cache.error().message;
    EXPECT_EQ(cache.value().num_blocks(), 2u);
    EXPECT_EQ(kShape.bytes_per_token(), 144u);
    const auto bytes_of = [](const KvLayer& layer) {
        return std::span(layer.data, layer.num_slots * layer.bytes_per_token);
    };
    for (uint32_t i = 0; i < kShape.num_layers; ++i) {
        const KvLayer layer = cache.value().layer(i);
        EXPECT_EQ(layer.num_slots, 128u);
        EXPECT_EQ(layer.bytes_per_token, 48u);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(layer.data) % 64, 0u);
        EXPECT_THAT(bytes_of(layer), Each(std::byte{0}));
        std::ranges::fill(bytes_of(layer), std::byte(i + 1));
    }
    for (uint32_t i = 0; i < kShape.num_layers; ++i) {
        EXPECT_THAT(bytes_of(cache.value().layer(i)), Each(std::byte(i + 1)));
    }
}

TEST(KvCache, WindowedLayersHaveSlotsOfTheirOwn) {
    auto cache =
        KvCache::create(kShape, 300, {.is_windowed = {false, true, false}, .num_tokens = 65});
    ASSERT_TRUE(cache.ok()) << cache.error().message;
    EXPECT_EQ(cache.value().num_blocks(), 5u);
    EXPECT_EQ(cache.value().num_windowed_blocks(), 2u);
    const auto slots = [&](uint32_t layer) { return cache.value().layer(layer).num_slots; };
    EXPECT_EQ(slots(0), 5u * 64);
    EXPECT_EQ(slots(1), 2u * 64);
    EXPECT_EQ(slots(2), 5u * 64);
    EXPECT_FALSE(cache.value().is_windowed(0));
    EXPECT_TRUE(cache.value().is_windowed(1));
    for (uint32_t layer = 0; layer + 1 < 3; ++layer) {
        const KvLayer here = cache.value().layer(layer);
        EXPECT_EQ(here.data + here.num_slots * here.bytes_per_token,
                  cache.value().layer(layer + 1).data);
    }
}

// Pages of a layer's cache that the kernel holds memory for, those that it shares with a neighbour
// left out.
size_t num_resident(const KvLayer& layer) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto data = reinterpret_cast<uintptr_t>(layer.data);
    const uintptr_t begin = (data + page - 1) / page * page;
    const uintptr_t end = (data + layer.num_slots * layer.bytes_per_token) / page * page;
    std::vector<unsigned char> pages((end - begin) / page);
    EXPECT_EQ(::mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()), 0);
    return static_cast<size_t>(
        std::ranges::count_if(pages, [](unsigned char state) { return (state & 1) != 0; }));
}

// Goal: a cache whose memory is to come later has none, and gets all of it part by part, whatever
// is stored meanwhile. Method: layers of more than two parts; a number in every byte of one before
// the second part. Oracle: what mincore() says, and the bytes.
TEST(KvCache, MemoryThatIsToComeLaterComesPartByPart) {
    constexpr uint64_t kTokens = 100'000;
    static_assert(48 * kTokens > 2 * KvCache::kPartBytes);
    // The kernel may make one huge page of what lies beside the first cache and the begin of the
    // second one, at any time.
    ASSERT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    const auto now = KvCache::create(kShape, kTokens);
    auto later = KvCache::create(kShape, kTokens, {}, KvCache::Memory::kLater);
    ASSERT_TRUE(now.ok() && later.ok());
    const size_t all = num_resident(now.value().layer(0));
    EXPECT_GT(all, 1000u) << "at once";
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(num_resident(later.value().layer(i)), 0u) << i;
    ASSERT_TRUE(later.value().populate(0));
    for (uint32_t i = 0; i < 3; ++i) EXPECT_GT(num_resident(later.value().layer(i)), 0u) << i;
    const KvLayer layer = later.value().layer(1);
    const std::span bytes(layer.data, layer.num_slots * layer.bytes_per_token);
    std::ranges::fill(bytes, std::byte{7});
    size_t part = 1;
    while (later.value().populate(part)) ++part;
    EXPECT_EQ(part, 48 * kTokens / KvCache::kPartBytes);
    EXPECT_FALSE(later.value().populate(part + 1)) << "beyond the end";
    for (uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(num_resident(later.value().layer(i)), num_resident(now.value().layer(i))) << i;
    }
    EXPECT_THAT(bytes, Each(std::byte{7}));
    EXPECT_EQ(later.value().layer(2).data[0], std::byte{0});
    EXPECT_EQ(::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
}

TEST(KvCache, SaysHowManyBytesAreMissing) {
    const auto cache = KvCache::create(kShape, uint64_t{1} << 50);
    ASSERT_FALSE(cache.ok());
    EXPECT_EQ(cache.error().code, Code::kResourceExhausted);
    EXPECT_THAT(cache.error().message,
                HasSubstr("a KV cache of 1125899906842624 tokens, 144 bytes each"));
}

}  // namespace
}  // namespace afd::model
