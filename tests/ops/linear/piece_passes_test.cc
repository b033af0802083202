// SPDX-License-Identifier: Apache-2.0

// Goal: rows that pass the panels of a matrix in pieces have the bits of rows that pass them whole
// (promise 1), whatever is cut: rows into chunks, panels into groups, depth into pieces.
// Method: products of every weight format with the tiles in software, and with those of the
// processor where it has them; depths that are no multiple of anything, more rows than a chunk and
// more panels than a group have, and the blocks of other caches.
// Oracle: the same rows one by one, which take no pieces, as this processor computes class amx.

#include "ops/linear/piece_passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/linear/panel_loop.h"
#include "ops/tensor/round_up.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/cpu/amx_tables.h"
#include "tests/ops/cpu/with_blocks.h"
#include "tests/ops/linear/random_products.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

struct PieceCase {
    size_t num_rows;
    size_t num_outputs;
    size_t depth;
};

// Some rows wide apart and crowded in few sets of a cache, others not.
constexpr PieceCase kPieceCases[] = {
    {33, 70, 1301}, {40, 600, 100}, {64, 40, 1024}, {100, 70, 512}, {530, 70, 300}};

// pass(finish) calls finish(row, panel, sums).
template <typename Pass>
std::vector<uint32_t> bits_of_passes(const PieceCase& product, const Pass& pass) {
    const size_t width = div_up(product.num_outputs, kPanelColumns) * kPanelColumns;
    std::vector<float> y(product.num_rows * width, -1.0f);
    pass([&](size_t row, size_t panel, const float* sums) {
        std::copy_n(sums, kPanelColumns, &y[row * width + panel * kPanelColumns]);
    });
    return test::bits_of(std::span<const float>(y));
}

TEST(PiecePasses, HaveTheBitsOfWholePanels) {
    size_t num_tables = 0;
    for (const test::KernelTable& table : test::amx_tables()) {
        if (table.kernels.bf16_pieces == nullptr) continue;
        ++num_tables;
        for (const WeightFormat format : kWeightFormats) {
            for (const PieceCase& product : kPieceCases) {
                const PackedLinear weight = test::random_packed(
                    format, product.num_outputs, product.depth, NumericClass::kAmx);
                const test::RandomInput x(product.num_rows, weight);
                const auto whole = bits_of_passes(product, [&](const auto& finish) {
                    for (size_t row = 0; row < product.num_rows; ++row) {
                        LinearInput one(x.input().rows.slice(row, 1));
                        if (x.input().int8.given()) one.int8 = x.input().int8.slice(row, 1);
                        for_each_panel_row(one,
                                           weight,
                                           0,
                                           weight.num_panels(),
                                           [&](size_t, size_t panel, const float* sums) {
                                               finish(row, panel, sums);
                                           });
                    }
                });
                for (const cpu::Caches& caches : {cpu::Caches{size_t{48} << 10, size_t{2} << 20},
                                                  cpu::kSmallCaches,
                                                  cpu::Caches{size_t{1} << 30, size_t{1} << 34}}) {
                    const test::WithBlocks blocks(cpu::BlockSizes::of(caches));
                    const auto pieces = bits_of_passes(product, [&](const auto& finish) {
                        piece_panels(
                            {table.kernels, weight, 0, weight.num_panels()}, x.input(), finish);
                    });
                    ASSERT_EQ(pieces, whole)
                        << table.name << ", " << name_of(format) << ", " << product.num_rows
                        << " rows, " << product.num_outputs << " x " << product.depth << ", "
                        << cpu::block_sizes().piece_row_bytes << " bytes a piece";
                }
            }
        }
    }
    EXPECT_GT(num_tables, 0u);
}

}  // namespace
}  // namespace afd::ops
