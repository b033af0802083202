// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor/huge_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace afd::ops {
namespace {

struct Block {
    unsigned char* data = nullptr;
    size_t bytes = 0;
    unsigned char mark = 0;
};

bool holds_its_mark(const Block& block) {
    return std::all_of(block.data, block.data + block.bytes, [&](unsigned char value) {
        return value == block.mark;
    });
}

// Goal: blocks of all sizes, small ones, parts of a slab and more than one slab, never overlap and
// keep their contents while others come and go. Method: random allocations and frees, each block
// filled with its own mark. Oracle: the mark, read whole before the block is freed.
TEST(HugeMemory, BlocksAreApartAndKeepTheirContents) {
    std::mt19937 engine(1);
    const size_t sizes[] = {1, 1000, 16384, 50'001, size_t{1} << 20, size_t{9} << 20};
    std::vector<Block> blocks;
    for (int step = 0; step < 300; ++step) {
        if (blocks.size() > 12 || (step % 3 == 2 && !blocks.empty())) {
            std::swap(blocks[engine() % blocks.size()], blocks.back());
            ASSERT_TRUE(holds_its_mark(blocks.back())) << "step " << step;
            free_huge(blocks.back().data, blocks.back().bytes);
            blocks.pop_back();
            continue;
        }
        Block block;
        block.bytes = step == 7 ? size_t{70} << 20 : sizes[engine() % std::size(sizes)];
        block.mark = static_cast<unsigned char>(step);
        block.data = static_cast<unsigned char*>(allocate_huge(block.bytes));
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block.data) % 64, 0u);
        std::memset(block.data, block.mark, block.bytes);
        blocks.push_back(block);
    }
    for (const Block& block : blocks) {
        EXPECT_TRUE(holds_its_mark(block));
        free_huge(block.data, block.bytes);
    }
}

}  // namespace
}  // namespace afd::ops
