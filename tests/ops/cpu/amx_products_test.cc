// SPDX-License-Identifier: Apache-2.0

// Goal: products on tiles have the bits of class amx without them, for weights of every format,
// any number of rows and depths that no tile divides.
// Method: the loops that serve, on the tables of tile_amx_tables(): the tile registers in software,
// and those of the processor where it has them.
// Oracle: the fastest table without tiles; the plainest ones are held to it in amx_test.cc.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "ops/linear/panel_loop.h"
#include "tests/ops/cpu/amx_tables.h"
#include "tests/ops/cpu/with_amx_kernels.h"
#include "tests/ops/cpu/with_blocks.h"
#include "tests/ops/linear/random_products.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

// Three panels and a part of one.
constexpr size_t kOutputs = 3 * kPanelColumns + 7;

std::vector<uint32_t> bits_of_product(const PackedLinear& weight,
                                      const LinearInput& x,
                                      const cpu::Kernels& kernels) {
    const test::WithAmxKernels with_kernels(kernels);
    const size_t width = weight.num_panels() * kPanelColumns;
    std::vector<float> y(x.rows.num_rows * width, -1.0f);
    for_each_panel_row(
        x, weight, 0, weight.num_panels(), [&](size_t row, size_t panel, const float* sums) {
            std::copy_n(sums, kPanelColumns, &y[row * width + panel * kPanelColumns]);
        });
    return test::bits_of(std::span<const float>(y));
}

void expect_bits_of_emulation(size_t depth, std::span<const size_t> row_counts) {
    const auto emulations = test::emulated_amx_tables();
    const auto tiles = test::tile_amx_tables();
    for (const WeightFormat format : kWeightFormats) {
        const PackedLinear weight =
            test::random_packed(format, kOutputs, depth, NumericClass::kAmx);
        for (const size_t num_rows : row_counts) {
            const test::RandomInput x(num_rows, weight);
            const auto expected = bits_of_product(weight, x.input(), emulations.back().kernels);
            for (const test::KernelTable& table : tiles) {
                ASSERT_EQ(bits_of_product(weight, x.input(), table.kernels), expected)
                    << table.name << ", " << name_of(format) << ", " << num_rows << " rows, depth "
                    << depth;
                ASSERT_FALSE(test::holds_software_tiles()) << table.name << " did not release them";
            }
        }
    }
}

TEST(AmxProducts, HaveTheBitsOfTheEmulationForEveryNumberOfRows) {
    if (!supported(NumericClass::kAvx512Bf16)) {
        std::printf("without AVX-512 BF16 only products of the kernels of AMX are tested here\n");
    }
    std::vector<size_t> row_counts;
    for (size_t num_rows = 1; num_rows <= 70; ++num_rows) row_counts.push_back(num_rows);
    for (const size_t num_rows : {128u, 300u}) row_counts.push_back(num_rows);
    expect_bits_of_emulation(161, row_counts);
}

TEST(AmxProducts, HaveTheBitsOfTheEmulationForEveryDepth) {
    constexpr size_t kRowCounts[] = {1, 16, 17, 32, 33, 47, 64, 100};
    for (const size_t depth : {1u, 2u, 31u, 32u, 33u, 96u, 128u, 130u, 290u}) {
        expect_bits_of_emulation(depth, kRowCounts);
    }
}

// Several pieces of depth, with the blocks of an Intel core and of small caches.
TEST(AmxProducts, HaveTheBitsOfTheEmulationForDeepWeights) {
    constexpr size_t kRowCounts[] = {3, 20, 40};
    for (const cpu::Caches& caches :
         {cpu::Caches{size_t{48} << 10, size_t{2} << 20}, cpu::kSmallCaches}) {
        const test::WithBlocks blocks(cpu::BlockSizes::of(caches));
        for (const size_t depth : {640u, 1301u}) expect_bits_of_emulation(depth, kRowCounts);
    }
}

size_t fetched_ahead = 0;

// Goal: weights of few rows are fetched as far ahead as tiles want it, also where the first-level
// cache is large. Method: a tile that notes what it is told.
TEST(AmxProducts, FetchTheWeightsOfFewRowsFarAhead) {
    const cpu::BlockSizes large = cpu::BlockSizes::of({size_t{48} << 10, size_t{2} << 20});
    ASSERT_LT(large.fetch_near, large.fetch_far);
    const test::WithBlocks blocks(large);
    const PackedLinear weight =
        test::random_packed(WeightFormat::kBf16, kOutputs, 64, NumericClass::kAmx);
    const test::RandomInput x(3, weight);
    for (const test::KernelTable& table : test::tile_amx_tables()) {
        cpu::Kernels noting = table.kernels;
        noting.tile = [](const cpu::TileArguments& a) {
            fetched_ahead = a.fetch_ahead.bytes;
            std::fill_n(a.out, a.num_rows * a.num_panels * kPanelColumns, 0.0f);
        };
        bits_of_product(weight, x.input(), noting);
        EXPECT_EQ(fetched_ahead, large.fetch_far) << table.name;
    }
}

// Goal: what goes on beside the products of a piece is all done when they are, or left alone.
TEST(AmxProducts, DoWhatGoesOnMeanwhile) {
    for (const test::KernelTable& table : test::tile_amx_tables()) {
        for (const size_t num_rows : {1u, 32u, 33u, 70u}) {
            for (const size_t num_parts : {0u, 1u, 8u, 1000u}) {
                for (const size_t depth : {1u, 32u, 70u}) {
                    const test::RandomMatrix x(num_rows, depth, 1);
                    const std::vector<uint16_t> panels(2 * (depth + 1) * kPanelColumns);
                    std::vector<float> sums(2 * num_rows * kPanelColumns);
                    size_t done = 0;
                    cpu::PieceArguments a;
                    set_rows(x.rows(), 0, 0, depth, a);
                    a.num_rows = num_rows;
                    a.panels = reinterpret_cast<const std::byte*>(panels.data());
                    a.panel_stride = panels.size() / 2 * sizeof(uint16_t);
                    a.num_panels = 2;
                    a.sums = reinterpret_cast<std::byte*>(sums.data());
                    a.meanwhile = {
                        [](void* count) { ++*static_cast<size_t*>(count); }, &done, num_parts};
                    table.kernels.bf16_pieces(a);
                    EXPECT_EQ(done, depth < 32 ? 0 : num_parts)
                        << table.name << ", " << num_rows << " rows, depth " << depth;
                }
            }
        }
    }
}

// What a kernel of pieces is given to do beside its products.
struct BesideProducts {
    size_t num_parts;
    const std::byte* fetch;

    friend bool operator==(const BesideProducts&, const BesideProducts&) = default;
};
std::vector<BesideProducts> beside_products;

// Goal: weights are unpacked beside the products of the piece before theirs, and have come from
// memory by then. Method: a kernel that notes what it is given.
TEST(AmxProducts, UnpackThePieceThatComesNextMeanwhile) {
    const test::WithBlocks blocks(cpu::BlockSizes::of({size_t{48} << 10, size_t{2} << 20}));
    constexpr size_t kDepth = 4 * 256 + 128;
    const PackedLinear weight =
        test::random_packed(WeightFormat::kInt4Group32, kOutputs, kDepth, NumericClass::kAmx);
    const test::RandomInput x(40, weight);
    for (const test::KernelTable& table : test::tile_amx_tables()) {
        cpu::Kernels noting = table.kernels;
        noting.shape.nibble_panel_rows = noting.shape.rows;
        noting.bf16_pieces = [](const cpu::PieceArguments& a) {
            beside_products.push_back({a.meanwhile.num_parts, a.fetch});
            std::fill_n(a.sums, a.num_panels * a.num_rows * kPanelColumns * 4, std::byte{0});
        };
        beside_products.clear();
        bits_of_product(weight, x.input(), noting);
        const auto at = [&](size_t k) {
            return weight.panel_data(0) + int4_groups(weight.format()).offset(k);
        };
        // A part is a group of one of four panels.
        const std::vector<BesideProducts> expected = {
            {32, at(512)}, {32, at(768)}, {32, at(1024)}, {16, nullptr}, {0, nullptr}};
        EXPECT_EQ(beside_products, expected) << table.name;
    }
}

}  // namespace
}  // namespace afd::ops
