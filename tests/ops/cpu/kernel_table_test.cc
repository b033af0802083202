// SPDX-License-Identifier: Apache-2.0

// Goal: a class is its table. What a table says of its tiles holds, and the loops around the
// kernels follow it, so that a class with tiles of another shape needs no other edit.
// Method: every table of this processor and the toy class, through the loops of
// ops/linear/panel_loop.h.
// Oracle: the bits of portable, whose arithmetic the toy class has.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/linear/panel_loop.h"
#include "tests/ops/cpu/amx_tables.h"
#include "tests/ops/cpu/kernel_tables.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

// Those of this processor, and all ways to class amx.
std::vector<test::KernelTable> tables_of_every_way() {
    std::vector<test::KernelTable> tables = test::every_kernel_table();
    for (const test::KernelTable& table : test::amx_tables()) tables.push_back(table);
    return tables;
}

TEST(KernelTable, TilesAreWithinTheBoundsOfArrays) {
    for (const test::KernelTable& table : tables_of_every_way()) {
        SCOPED_TRACE(table.name);
        const cpu::TileShape& shape = table.kernels.shape;
        EXPECT_GE(shape.rows, size_t{1});
        EXPECT_LE(shape.rows, cpu::kTileRowsMax);
        EXPECT_GE(shape.row_panels, size_t{1});
        EXPECT_LE(shape.row_panels, shape.rows);
        EXPECT_LE(shape.int4_rows, shape.rows);
        EXPECT_LE(shape.fp8_rows, shape.rows);
        EXPECT_GE(shape.w4a8_rows, size_t{1});
        EXPECT_LE(shape.w4a8_rows, cpu::kTileRowsMax);
        for (size_t num_rows = 1; num_rows <= shape.rows; ++num_rows) {
            EXPECT_LE(num_rows * shape.panels(num_rows), shape.rows) << num_rows << " rows";
        }
    }
}

TEST(KernelTable, HasTheKernelsThatItsShapeNames) {
    for (const test::KernelTable& table : tables_of_every_way()) {
        SCOPED_TRACE(table.name);
        EXPECT_EQ(table.kernels.bf16_pieces == nullptr, table.kernels.int8_pieces == nullptr);
        EXPECT_EQ(table.kernels.bf16_pieces == nullptr, table.kernels.fp8_pieces == nullptr);
        for (const WeightFormat format : kWeightFormats) {
            EXPECT_EQ(table.kernels.bf16_pieces == nullptr,
                      table.kernels.shape.whole_panel_rows(format) == cpu::TileShape::kAllRows)
                << name_of(format);
        }
        EXPECT_TRUE(table.kernels.shape.int4_rows == 0 || table.kernels.int4_tile != nullptr);
        EXPECT_TRUE(table.kernels.shape.int4_product_rows == cpu::TileShape::kAllRows ||
                    table.kernels.unpack_int4 != nullptr);
        EXPECT_LE(table.kernels.shape.int4_rows, table.kernels.shape.int4_product_rows);
        EXPECT_LE(table.kernels.shape.int4_zero_product_rows,
                  table.kernels.shape.int4_product_rows);
        EXPECT_EQ(table.kernels.shape.int4_rows == 0, table.kernels.shape.int4_product_rows == 0);
        EXPECT_EQ(table.kernels.unpack_groups == nullptr, table.kernels.group_tile == nullptr);
        EXPECT_TRUE(table.kernels.group_tile == nullptr ||
                    table.kernels.shape.int4_product_rows == cpu::TileShape::kAllRows);
        EXPECT_TRUE(table.kernels.attend_spans == nullptr || table.kernels.key_pair_heads == 0);
        for (const KvDtype dtype : {KvDtype::kInt8, KvDtype::kFp8}) {
            EXPECT_EQ(table.kernels.attend_quantised == nullptr,
                      table.kernels.quantised_heads_max.of(dtype) == 0)
                << name_of(dtype);
        }
        EXPECT_TRUE(table.kernels.w4a8_tile != nullptr && table.kernels.arrange_w4a8 != nullptr);
        EXPECT_TRUE(table.kernels.unpack_mxfp4 != nullptr);
        EXPECT_TRUE(table.kernels.unpack_fp8 != nullptr && table.kernels.add_block != nullptr);
        EXPECT_TRUE(table.kernels.shape.fp8_rows == 0 || table.kernels.fp8_tile != nullptr);
        EXPECT_LE(table.kernels.shape.fp8_rows, table.kernels.shape.fp8_product_rows);
        EXPECT_EQ(table.kernels.shape.fp8_rows == 0, table.kernels.shape.fp8_product_rows == 0);
    }
}

// Goal: unpacking is exact and pads with zeros. Oracle: the conversion of single values.
TEST(KernelTable, UnpacksEveryFp8ValueExactly) {
    for (const NumericClass numeric_class : supported_numeric_classes()) {
        SCOPED_TRACE(name_of(numeric_class));
        const size_t pair = bf16_interleave(numeric_class);
        alignas(64) std::array<std::byte, 12 * kPanelColumns> values{};
        for (size_t i = 0; i < 10 * kPanelColumns; ++i) {
            // Element k of column j, where the panel has it.
            const size_t k = i / kPanelColumns;
            const size_t j = i % kPanelColumns;
            values[k / 4 * 4 * kPanelColumns + j * 4 + k % 4] = static_cast<std::byte>(i % 256);
        }
        alignas(64) std::array<uint16_t, 12 * kPanelColumns> out;
        cpu::kernels(numeric_class)
            .unpack_fp8({.values = values.data(), .depth = 10, .out = out.data()});
        for (size_t i = 0; i < out.size(); ++i) {
            const size_t k = i / kPanelColumns;
            const size_t j = i % kPanelColumns;
            const E4m3 value{static_cast<uint8_t>(k < 10 ? i % 256 : 0)};
            if (is_nan(value)) continue;
            ASSERT_EQ(out[k / pair * pair * kPanelColumns + j * pair + k % pair],
                      to_bf16(value).bits)
                << k << ", " << j;
        }
    }
}

// Goal: whatever the scale, every number that a bf16 holds is unpacked exactly; one below 2^-126
// may be a zero of its sign where the products take it for that. Oracle: the product of both in
// fp32.
TEST(KernelTable, UnpacksEveryMxfp4ValueOfEveryScaleExactly) {
    std::vector<test::KernelTable> tables = test::every_kernel_table();
    // What other processors take for class amx.
    tables.push_back({"amx as in portable", cpu::amx_portable_kernels()});
    if (supported(NumericClass::kAvx2)) {
        tables.push_back({"amx as in avx2", cpu::amx_avx2_kernels()});
    }
    for (const test::KernelTable& table : tables) {
        SCOPED_TRACE(table.name);
        const bool has_pairs = table.name.starts_with("amx") || table.name == "avx512-bf16";
        const size_t pair = has_pairs ? 2 : 1;
        // Element k of a group has the number k, each column a scale of its own.
        for (int first = -127; first <= 127; first += 32) {
            constexpr Int4Groups kGroups{.size = 32};
            alignas(64) std::array<std::byte, kGroups.bytes(16)> group{};
            for (size_t j = 0; j < kPanelColumns; ++j) {
                const int exponent = std::min(first + static_cast<int>(j), 127);
                const uint16_t scale = from_float(std::ldexp(1.0f, exponent)).bits;
                std::memcpy(&group[j * 2], &scale, 2);
                for (size_t k = 0; k < 16; ++k) {
                    std::byte& byte = group[kInt4ScaleBytes + k / 8 * kInt4StepBytes + j * 4 +
                                            k % 2 * 2 + k % 8 / 4];
                    byte |= static_cast<std::byte>(k << k % 4 / 2 * 4);
                }
            }
            alignas(64) std::array<uint16_t, 16 * kPanelColumns> out{};
            table.kernels.unpack_mxfp4(
                {.panel = group.data(), .groups = kGroups, .depth = 16, .out = out.data()});
            for (size_t k = 0; k < 16; ++k) {
                for (size_t j = 0; j < kPanelColumns; ++j) {
                    const float value = std::ldexp(from_e2m1(static_cast<unsigned>(k)),
                                                   std::min(first + static_cast<int>(j), 127));
                    if (!std::isfinite(value)) continue;
                    const float have =
                        to_float(Bf16{out[k / pair * pair * kPanelColumns + j * pair + k % pair]});
                    const bool may_be_zero = has_pairs && std::abs(value) < 0x1p-126f;
                    if (may_be_zero && have == 0) {
                        ASSERT_EQ(std::signbit(have), std::signbit(value));
                        continue;
                    }
                    ASSERT_EQ(std::bit_cast<uint32_t>(have), std::bit_cast<uint32_t>(value))
                        << k << ", " << j << " from 2^" << first;
                }
            }
        }
    }
}

std::vector<uint32_t> product(const Bf16Product& product) {
    const size_t num_columns = product.weight.num_panels() * kPanelColumns;
    std::vector<float> y(product.x.num_rows * num_columns);
    float_panels(
        product, 0, product.weight.num_panels(), [&](size_t row, size_t panel, const float* sums) {
            std::copy_n(sums, kPanelColumns, &y[row * num_columns + panel * kPanelColumns]);
        });
    return test::bits_of(std::span<const float>(y));
}

TEST(KernelTable, LoopsFollowTheShapeOfTheToyClass) {
    const test::RandomMatrix w(150, 67, 1);
    const PackedLinear weight = PackedLinear::pack(w.rows(), NumericClass::kPortable);
    for (const size_t num_rows : {1u, 2u, 3u, 5u, 9u, 16u, 17u, 40u}) {
        const test::RandomMatrix x(num_rows, 67, 2);
        EXPECT_EQ(product({weight, x.rows(), test::toy_kernels()}),
                  product({weight, x.rows(), cpu::portable_kernels()}))
            << num_rows << " rows";
    }
}

}  // namespace
}  // namespace afd::ops
