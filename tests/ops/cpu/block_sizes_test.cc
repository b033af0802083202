// SPDX-License-Identifier: Apache-2.0

// Goal: blocks follow the caches, and no bit of a result follows from the blocks (promise 1).
// Method: products of every weight format in every numeric class, and attention over a quantised
// cache, with the blocks of other processors and with some that no processor has.
// Oracle: the bits with the blocks of a server with 48 KiB and 1 MiB.

#include "ops/cpu/block_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "ops/linear/panel_loop.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/attention/mla_layer.h"
#include "tests/ops/cpu/with_blocks.h"
#include "tests/ops/linear/random_products.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using cpu::BlockSizes;
using test::WithBlocks;

constexpr size_t kKiB = 1024;

BlockSizes server() {
    return BlockSizes::of({48 * kKiB, 1024 * kKiB});
}

std::vector<BlockSizes> others() {
    BlockSizes least = BlockSizes::of({1, 1});
    least.widened = 1;
    least.panels = 1;
    BlockSizes most = BlockSizes::of({size_t{1} << 30, size_t{1} << 34});
    most.fetch_near = most.fetch_far = size_t{1} << 20;
    return {BlockSizes::of(cpu::kSmallCaches),
            BlockSizes::of({32 * kKiB, 512 * kKiB}),
            BlockSizes::of({48 * kKiB, 2048 * kKiB, true}),
            BlockSizes::of({64 * kKiB, 1024 * kKiB}),
            least,
            most};
}

TEST(BlockSizes, FollowTheCaches) {
    const BlockSizes of_server = server();
    EXPECT_EQ(of_server.piece_depth, 512u);
    EXPECT_EQ(of_server.piece_rows, 192u);
    EXPECT_EQ(of_server.panel_depth, 8192u);
    EXPECT_EQ(of_server.widened, 3072u);
    EXPECT_EQ(of_server.fetch_near, 4096u);
    EXPECT_EQ(of_server.fetch_far, 8192u);
    EXPECT_GE(of_server.near_rows, 12u);
    EXPECT_EQ(of_server.panels, 4u);

    const BlockSizes intel = BlockSizes::of({48 * kKiB, 2048 * kKiB, true});
    EXPECT_EQ(intel.near_rows, 0u);
    EXPECT_EQ(intel.piece_depth, 512u);
    EXPECT_EQ(intel.piece_rows, 384u);
    EXPECT_EQ(intel.panel_depth, 16384u);

    const BlockSizes small = BlockSizes::of(cpu::kSmallCaches);
    EXPECT_EQ(small.piece_depth, 256u);
    EXPECT_EQ(small.piece_rows, 96u);
    EXPECT_EQ(small.panel_depth, 2048u);
    EXPECT_EQ(small.widened, 2048u);
    EXPECT_EQ(small.fetch_far, 4096u);
    EXPECT_EQ(small.near_rows, 6u);
    EXPECT_LT(small.in_second_level(76 * kKiB, 8), of_server.in_second_level(76 * kKiB, 8));
}

TEST(BlockSizes, AreWithinTheBoundsOfArraysWhateverTheCaches) {
    for (const size_t first : {size_t{0}, size_t{1}, 16 * kKiB, size_t{1} << 40}) {
        for (const size_t second : {size_t{0}, size_t{1}, 128 * kKiB, size_t{1} << 40}) {
            const BlockSizes sizes = BlockSizes::of({first, second});
            SCOPED_TRACE(std::to_string(first) + ", " + std::to_string(second));
            EXPECT_GE(sizes.piece_depth, BlockSizes::kDepths);
            EXPECT_LE(sizes.piece_depth, BlockSizes::kPieceDepthMax);
            EXPECT_EQ(sizes.piece_depth % BlockSizes::kDepths, 0u);
            EXPECT_GE(sizes.panel_depth, BlockSizes::kDepths);
            EXPECT_EQ(sizes.panel_depth % BlockSizes::kDepths, 0u);
            EXPECT_GE(sizes.piece_rows, BlockSizes::kRows);
            EXPECT_LE(sizes.piece_rows, BlockSizes::kPieceRowsMax);
            EXPECT_LE(sizes.widened, BlockSizes::kWidenedMax);
            EXPECT_GE(sizes.panels, 1u);
            EXPECT_LE(sizes.panels, BlockSizes::kPanelsMax);
            EXPECT_GE(sizes.in_second_level(76 * kKiB, 8), 1u);
        }
    }
}

AFD_FOR_EVERY_CLASS(BlockSizesBits);

std::vector<uint32_t> product(const LinearInput& input, const PackedLinear& weight) {
    SerialParallel serial;
    const size_t width = weight.num_panels() * kPanelColumns;
    std::vector<float> y(input.rows.num_rows * width);
    for_each_panel_row(input, weight, serial, [&](size_t row, size_t panel, const float* sums) {
        std::copy_n(sums, kPanelColumns, &y[row * width + panel * kPanelColumns]);
    });
    return test::bits_of(std::span<const float>(y));
}

TEST_P(BlockSizesBits, AreTheSameForProducts) {
    constexpr size_t kDepth = 1301;
    for (const WeightFormat format : kWeightFormats) {
        const PackedLinear weight = test::random_packed(format, 70, kDepth, GetParam());
        for (const size_t num_rows : {1u, 3u, 9u, 40u, 200u}) {
            const test::RandomInput x(num_rows, weight);
            std::vector<uint32_t> expected;
            {
                const WithBlocks blocks(server());
                expected = product(x.input(), weight);
            }
            for (const BlockSizes& sizes : others()) {
                const WithBlocks blocks(sizes);
                ASSERT_EQ(product(x.input(), weight), expected)
                    << name_of(format) << ", " << num_rows << " rows, pieces of "
                    << sizes.piece_depth << " and " << sizes.panel_depth;
            }
        }
    }
}

// 40 heads are three groups, of which as many go together as stay in the second-level cache.
TEST_P(BlockSizesBits, AreTheSameForAttentionOverAQuantisedCache) {
    SerialParallel serial;
    const test::MlaLayer layer(GetParam(), 24, 40);
    const test::RandomMatrix x(130, layer.shape.hidden, 3);
    std::vector<int32_t> positions(130);
    std::iota(positions.begin(), positions.end(), 0);
    const auto forward = [&](const BlockSizes& sizes) {
        const WithBlocks blocks(sizes);
        test::MlaCache cache(layer.shape, KvDtype::kInt8);
        const test::MlaResults results =
            test::mla_forward(layer, x, positions, {2, 0, 1}, cache.view(), serial);
        return test::bits_of(std::span<const Bf16>(results.out.values));
    };
    const auto expected = forward(server());
    for (const BlockSizes& sizes : others()) {
        ASSERT_EQ(forward(sizes), expected) << sizes.second_level << " bytes for groups";
    }
}

}  // namespace
}  // namespace afd::ops
