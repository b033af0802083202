// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor/huge_memory.h"
#include "proto/sanitizers.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace afd::ops {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

struct Block {
    unsigned char* data = nullptr;
    size_t bytes = 0;
    unsigned char mark = 0;
};

Block take(size_t bytes, unsigned char mark = 0) {
    return {static_cast<unsigned char*>(allocate_huge(bytes)), bytes, mark};
}

void release(std::vector<Block>& blocks) {
    for (const Block& block : blocks) free_huge(block.data, block.bytes);
    blocks.clear();
}

bool holds_its_mark(const Block& block) {
    return std::all_of(block.data, block.data + block.bytes, [&](unsigned char value) {
        return value == block.mark;
    });
}

// Goal: blocks of all sizes, small ones, parts of a slab and larger ones, never overlap and keep
// their contents while others come and go. Method: random allocations and frees, each block
// filled with its own mark. Oracle: the mark, read whole before the block is freed.
void come_and_go(unsigned seed, int num_steps, size_t largest) {
    std::mt19937 engine(seed);
    const size_t sizes[] = {
        1, 1000, 16 * kKiB, 50'001, kMiB, 8 * kMiB, 8 * kMiB + 1, 9 * kMiB + 4 * kKiB};
    std::vector<Block> blocks;
    for (int step = 0; step < num_steps; ++step) {
        if (blocks.size() > 12 || (step % 3 == 2 && !blocks.empty())) {
            std::swap(blocks[engine() % blocks.size()], blocks.back());
            ASSERT_TRUE(holds_its_mark(blocks.back())) << "step " << step;
            free_huge(blocks.back().data, blocks.back().bytes);
            blocks.pop_back();
            continue;
        }
        const Block block = take(step == 0 ? largest : sizes[engine() % std::size(sizes)],
                                 static_cast<unsigned char>(step + static_cast<int>(seed)));
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block.data) % 64, 0u);
        std::memset(block.data, block.mark, block.bytes);
        blocks.push_back(block);
    }
    for (const Block& block : blocks) EXPECT_TRUE(holds_its_mark(block));
    release(blocks);
}

TEST(HugeMemory, BlocksAreApartAndKeepTheirContents) {
    come_and_go(1, 300, 70 * kMiB);
}

// The same by several threads at once, which share slabs.
TEST(HugeMemory, ThreadsShareSlabs) {
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed) {
        threads.emplace_back([seed] { come_and_go(seed, 40, 12 * kMiB); });
    }
    for (std::thread& thread : threads) thread.join();
}

// With the address sanitizer all blocks come from operator new, and the thread sanitizer keeps
// notes of its own on memory that is written: what is resident says nothing there.
#if !AFD_SANITIZED

// Of this process.
size_t resident_bytes() {
    size_t pages = 0;
    std::ifstream statm("/proc/self/statm");
    statm >> pages >> pages;
    return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// Goal: attention matrices are resident once, whatever their sizes and order. Method: eight layers
// of sizes that fill slabs exactly, lie just above whole huge pages, and are mixed with small ones;
// each block is written whole, and then freed. Oracle: the process's resident pages.
TEST(HugeMemory, WhatIsResidentIsWhatWasAskedFor) {
    const std::vector<size_t> layers[] = {
        {16 * kMiB, 16 * kMiB, 2 * kMiB, 2 * kMiB},                // bf16: o, q, k, v
        {33'500'000, 8'400'000, 8'400'000, 33'500'000},            // fp8 or int8
        {8 * kMiB + 16 * kKiB, 8 * kMiB + 16 * kKiB, kMiB, kMiB},  // int8 with scales
        {3 * kMiB, 7 * kMiB, 100 * kKiB, 5 * kMiB},
    };
    for (const std::vector<size_t>& layer : layers) {
        const size_t before = resident_bytes();
        size_t asked = 0;
        std::vector<Block> blocks;
        for (int i = 0; i < 5; ++i) {
            for (const size_t bytes : layer) {
                blocks.push_back(take(bytes));
                std::memset(blocks.back().data, 1, bytes);
                asked += bytes;
            }
        }
        const size_t grown = resident_bytes() - before;
        EXPECT_LE(grown, asked + asked / 10) << "layers of " << layer.front() << " bytes";
        EXPECT_GE(grown, asked - asked / 10) << "layers of " << layer.front() << " bytes";
        release(blocks);
        EXPECT_LE(resident_bytes(), before + kMiB) << "after layers of " << layer.front();
    }
}

TEST(HugeMemory, LargeBlocksLeaveTheSlabOfSmallOnesAsItIs) {
    std::vector<Block> blocks = {take(64 * kKiB), take(70 * kMiB), take(9 * kMiB), take(64 * kKiB)};
    EXPECT_EQ(blocks[3].data, blocks[0].data + 64 * kKiB);
    release(blocks);
}

// Resident when it is handed out, so that no request waits for zeroed pages; but not a worst case.
TEST(HugeMemory, BlocksAreResidentUpToALimit) {
    const size_t before = resident_bytes();
    std::vector<Block> blocks = {take(7 * kMiB)};
    const size_t with_small = resident_bytes();
    blocks.push_back(take(20 * kMiB));
    const size_t with_large = resident_bytes();
    blocks.push_back(take(70 * kMiB));
    const size_t with_largest = resident_bytes();
    release(blocks);
    // Less a huge page: its first one may be resident for the slab's block before.
    EXPECT_GE(with_small, before + 5 * kMiB);
    EXPECT_GE(with_large, with_small + 20 * kMiB);
    EXPECT_LE(with_largest, with_large + kMiB);
}

#endif

}  // namespace
}  // namespace afd::ops
