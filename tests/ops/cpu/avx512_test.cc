// SPDX-License-Identifier: Apache-2.0

// Goal: class avx512 has the bits of avx2, with and without VNNI and VBMI, for every number of
// rows and heads.
// Method: single kernels over depths and widths around those of registers and of pieces; weights
// with subnormals. On processors without AVX-512 nothing runs.
// Oracle: the kernels of avx2, which tests of every class hold to the references.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"
#include "ops/format/weight_format.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/cpu/kernel_tables.h"
#include "tests/ops/cpu/token_attention.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

std::vector<test::KernelTable> avx512_tables() {
    std::vector<test::KernelTable> tables;
#ifdef AFD_TEST_X86
    if (!supported(NumericClass::kAvx512)) return tables;
    tables.push_back({"avx512 without VNNI", cpu::avx512_kernels()});
    if (__builtin_cpu_supports("avx512vnni")) {
        tables.push_back({"avx512 with VNNI", cpu::avx512_vnni_kernels()});
        if (__builtin_cpu_supports("avx512vbmi")) {
            tables.push_back({"avx512 with VBMI", cpu::avx512_vbmi_kernels()});
        }
    }
#endif
    return tables;
}

// The sums of `num_panels` panels, the second half of the depth in a call of its own.
std::vector<uint32_t> tile_sums(const cpu::Kernels& kernels,
                                const test::RandomMatrix& x,
                                std::span<const uint16_t> weights,
                                size_t num_rows,
                                size_t num_panels) {
    const size_t depth = x.rows().num_cols;
    std::vector<float> out(num_rows * num_panels * kPanelColumns);
    cpu::TileArguments a;
    a.x_stride = x.rows().stride;
    a.num_rows = num_rows;
    a.panel_elements = depth * kPanelColumns;
    a.num_panels = num_panels;
    a.out = out.data();
    for (const auto& [first, last] : {std::pair{size_t{0}, depth / 2}, {depth / 2, depth}}) {
        a.x = x.rows().row(0) + first;
        a.panel = weights.data() + first * kPanelColumns;
        a.depth = last - first;
        kernels.tile(a);
        a.goes_on = true;
    }
    return test::bits_of(std::span<const float>(out));
}

TEST(Avx512Class, TilesHaveTheBitsOfAvx2) {
    constexpr size_t kPanels = 3;
    for (const size_t depth : {1u, 2u, 15u, 31u, 33u, 514u, 1100u, 6200u}) {
        const test::RandomMatrix x(12, depth, 1);
        // Every pattern that is a number.
        std::vector<uint16_t> weights(kPanels * depth * kPanelColumns);
        std::mt19937 engine(2);
        for (uint16_t& bits : weights) {
            bits = static_cast<uint16_t>(engine() & (engine() % 8 == 0 ? 0x80ffu : 0xbfffu));
        }
        for (const test::KernelTable& table : avx512_tables()) {
            for (size_t num_rows = 1; num_rows <= table.kernels.shape.rows; ++num_rows) {
                const size_t num_panels = num_rows % kPanels + 1;
                EXPECT_EQ(
                    tile_sums(table.kernels, x, weights, num_rows, num_panels),
                    tile_sums(cpu::kernels(NumericClass::kAvx2), x, weights, num_rows, num_panels))
                    << table.name << ", " << num_rows << " rows, depth " << depth;
            }
        }
    }
}

std::vector<int32_t> int8_sums(const cpu::Kernels& kernels,
                               std::span<const int8_t> x,
                               std::span<const std::byte> panel,
                               size_t depth,
                               size_t num_rows) {
    std::vector<int32_t> row_sum(num_rows);
    for (size_t r = 0; r < num_rows; ++r) row_sum[r] = kernels.sum_int8(&x[r * depth], depth);
    std::vector<int32_t> out(num_rows * kPanelColumns);
    cpu::Int8TileArguments a;
    a.x = x.data();
    a.x_stride = depth;
    a.num_rows = num_rows;
    a.panel = panel.data();
    a.depth = depth;
    a.out = out.data();
    a.row_sum = row_sum.data();
    kernels.int8_tile(a);
    return out;
}

TEST(Avx512Class, Int8SumsAreThoseOfAvx2) {
    constexpr size_t kRows = 12;
    constexpr size_t kDepthMax = 1028;
    std::mt19937 engine(3);
    std::vector<int8_t> x(kRows * kDepthMax);
    for (int8_t& value : x) value = static_cast<int8_t>(engine());
    alignas(64) static std::array<std::byte, kDepthMax * kPanelColumns> panel;
    for (std::byte& value : panel) value = static_cast<std::byte>(engine());
    for (const size_t depth : {1u, 3u, 4u, 5u, 63u, 64u, 66u, 1028u}) {
        for (const test::KernelTable& table : avx512_tables()) {
            for (size_t num_rows = 1; num_rows <= kRows; ++num_rows) {
                EXPECT_EQ(int8_sums(table.kernels, x, panel, depth, num_rows),
                          int8_sums(cpu::kernels(NumericClass::kAvx2), x, panel, depth, num_rows))
                    << table.name << ", " << num_rows << " rows, depth " << depth;
            }
        }
    }
}

// A panel of any e4m3 numbers, one in eight of them subnormal or 0, and its scales.
std::vector<std::byte> fp8_panel(size_t depth, std::mt19937& engine) {
    std::vector<std::byte> panel(fp8_values_bytes(depth) + fp8_blocks(depth) * 2 * sizeof(float));
    for (size_t k = 0; k < depth; ++k) {
        for (size_t column = 0; column < kPanelColumns; ++column) {
            const auto magnitude = engine() % (engine() % 8 == 0 ? 8u : 127u);
            panel[k / 4 * 4 * kPanelColumns + 4 * column + k % 4] =
                static_cast<std::byte>(magnitude | (engine() % 2 << 7));
        }
    }
    for (size_t i = 0; i < 2 * fp8_blocks(depth); ++i) {
        const float scale = 0.001f * static_cast<float>(engine() % 1000);
        std::memcpy(&panel[fp8_values_bytes(depth) + i * sizeof scale], &scale, sizeof scale);
    }
    return panel;
}

std::vector<uint32_t> fp8_sums(const cpu::Kernels& kernels,
                               const Rows<const Bf16>& x,
                               const std::byte* panel) {
    std::vector<float> out(x.num_rows * kPanelColumns);
    cpu::Fp8TileArguments a;
    a.x = x.data;
    a.x_stride = x.stride;
    a.num_rows = x.num_rows;
    a.panel = panel;
    a.depth = x.num_cols;
    a.out = out.data();
    kernels.fp8_tile(a);
    return test::bits_of(std::span<const float>(out));
}

TEST(Avx512Class, Fp8TilesHaveTheBitsOfAvx2) {
    std::mt19937 engine(4);
    for (const size_t depth : {1u, 2u, 3u, 4u, 127u, 128u, 130u, 515u}) {
        const test::RandomMatrix x(8, depth, 5);
        const std::vector<std::byte> values = fp8_panel(depth, engine);
        const Workspace room(values.size());
        std::ranges::copy(values, room.bytes().begin());
        const std::byte* const panel = room.bytes().data();
        for (const test::KernelTable& table : avx512_tables()) {
            for (size_t num_rows = 1; num_rows <= table.kernels.shape.fp8_rows; ++num_rows) {
                std::vector<uint32_t> expected;
                for (size_t row = 0; row < num_rows; ++row) {
                    const auto one =
                        fp8_sums(cpu::kernels(NumericClass::kAvx2), x.rows().slice(row, 1), panel);
                    expected.insert(expected.end(), one.begin(), one.end());
                }
                EXPECT_EQ(fp8_sums(table.kernels, x.rows().slice(0, num_rows), panel), expected)
                    << table.name << ", " << num_rows << " rows, depth " << depth;
            }
        }
    }
}

// `num_tokens` tokens one behind the other, the last of which looks at `num_positions`.
std::vector<uint32_t> attend_tokens(const cpu::Kernels& kernels,
                                    const test::HeadsCase& c,
                                    size_t num_tokens,
                                    size_t num_positions) {
    std::vector<size_t> counts(num_tokens);
    for (size_t i = 0; i < num_tokens; ++i) counts[i] = num_positions - (num_tokens - 1 - i);
    return test::TokenAttention(c, counts).together(kernels);
}

TEST(Avx512Class, AttentionHasTheBitsOfAvx2) {
    const cpu::Kernels& avx2 = cpu::kernels(NumericClass::kAvx2);
    for (const test::KernelTable& table : avx512_tables()) {
        for (size_t num_heads = 1; num_heads <= cpu::kHeadsMax; ++num_heads) {
            for (const auto& [latent, rope] :
                 {std::pair{1u, 0u}, {33u, 7u}, {40u, 16u}, {128u, 0u}, {160u, 20u}}) {
                const test::HeadsCase c{num_heads, latent, rope, num_heads % 3 == 0};
                for (const size_t num_positions : {1u, 9u, 64u, 150u}) {
                    EXPECT_EQ(attend_tokens(table.kernels, c, 1, num_positions),
                              attend_tokens(avx2, c, 1, num_positions))
                        << table.name << ", " << num_heads << " heads of " << latent << " + "
                        << rope << ", " << num_positions << " positions";
                }
            }
        }
    }
}

// Several tokens in one state: the last block of each is apart, and its heads begin anywhere.
TEST(Avx512Class, TokensTogetherHaveTheBitsOfAvx2) {
    const cpu::Kernels& avx2 = cpu::kernels(NumericClass::kAvx2);
    for (const test::KernelTable& table : avx512_tables()) {
        for (const size_t num_heads : {1u, 2u, 3u, 5u}) {
            const test::HeadsCase c{num_heads, 72, 9, false};
            for (const size_t num_positions : {3u, 40u, 68u, 128u}) {
                EXPECT_EQ(attend_tokens(table.kernels, c, 3, num_positions),
                          attend_tokens(avx2, c, 3, num_positions))
                    << table.name << ", " << num_heads << " heads, " << num_positions
                    << " positions";
            }
        }
    }
}

}  // namespace
}  // namespace afd::ops
