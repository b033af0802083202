// SPDX-License-Identifier: Apache-2.0

// Goal: class amx has one arithmetic, however a processor computes it.
// Method: every way that this one has, among them the kernels of AMX on tile registers in software;
// the instruction itself where the processor has it.
// Oracle: vectors of a model in rational numbers (make_amx_vectors.py), then the bits of the
// plainest way.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "ops/attention/head_attention.h"
#include "ops/format/amx_support.h"
#include "ops/format/attention_batch.h"
#include "ops/linear/panel_loop.h"
#include "tests/ops/cpu/amx_tables.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

// Rows of x and a panel's columns, all the same: every lane and row has to give the one result.
std::vector<uint32_t> sums_of(const cpu::Kernels& kernels,
                              const std::vector<uint16_t>& pairs,
                              float c,
                              size_t num_rows) {
    const size_t depth = pairs.size() / 2;
    const size_t padded = (depth + 1) / 2 * 2;
    std::vector<Bf16> x(num_rows * depth);
    alignas(64) std::array<uint16_t, 96 * kPanelColumns> panel{};
    for (size_t k = 0; k < depth; ++k) {
        for (size_t r = 0; r < num_rows; ++r) x[r * depth + k] = Bf16{pairs[2 * k]};
        for (size_t j = 0; j < kPanelColumns; ++j) {
            panel[k / 2 * 2 * kPanelColumns + 2 * j + k % 2] = pairs[2 * k + 1];
        }
    }
    std::vector<float> out(num_rows * kPanelColumns, c);
    cpu::TileArguments a;
    a.x = x.data();
    a.x_stride = depth;
    a.num_rows = num_rows;
    a.panel = panel.data();
    a.panel_elements = padded * kPanelColumns;
    a.depth = depth;
    a.out = out.data();
    a.goes_on = true;
    kernels.tile(a);
    return test::bits_of(std::span<const float>(out));
}

TEST(AmxClass, HasTheSumsOfTheExactModel) {
    std::ifstream file(AFD_AMX_VECTORS);
    size_t num_lines = 0;
    for (std::string text; std::getline(file, text); ++num_lines) {
        std::istringstream line(text);
        uint32_t c = 0;
        uint32_t result = 0;
        line >> std::hex >> c >> result;
        std::vector<uint16_t> pairs;
        for (uint16_t value = 0; line >> std::hex >> value;) pairs.push_back(value);
        for (const test::KernelTable& table : test::amx_tables()) {
            for (const size_t num_rows : {size_t{1}, table.kernels.shape.rows}) {
                for (const uint32_t sum :
                     sums_of(table.kernels, pairs, std::bit_cast<float>(c), num_rows)) {
                    ASSERT_EQ(sum, result) << table.name << ", line " << num_lines + 1;
                }
            }
        }
    }
    EXPECT_GE(num_lines, size_t{200}) << AFD_AMX_VECTORS;
}

std::vector<uint32_t> product(const PackedLinear& weight,
                              Rows<const Bf16> x,
                              const cpu::Kernels& kernels) {
    const size_t num_columns = weight.num_panels() * kPanelColumns;
    std::vector<float> y(x.num_rows * num_columns);
    bf16_panels(kernels, x, weight, 0, weight.num_panels(), [&](size_t row, size_t panel, auto s) {
        std::copy_n(s, kPanelColumns, &y[row * num_columns + panel * kPanelColumns]);
    });
    return test::bits_of(std::span<const float>(y));
}

TEST(AmxClass, EveryWayHasTheSameBits) {
    for (const size_t depth : {1u, 2u, 31u, 32u, 33u, 67u, 256u, 300u, 577u}) {
        const test::RandomMatrix w(130, depth, 1);
        const PackedLinear weight = PackedLinear::pack(w.rows(), NumericClass::kAmx);
        for (const size_t num_rows : {1u, 2u, 7u, 16u, 17u, 31u, 32u, 33u, 80u}) {
            const test::RandomMatrix x(num_rows, depth, 2);
            const auto tables = test::amx_tables();
            const auto expected = product(weight, x.rows(), tables.front().kernels);
            for (const test::KernelTable& table : tables) {
                EXPECT_EQ(product(weight, x.rows(), table.kernels), expected)
                    << table.name << ", " << num_rows << " rows, depth " << depth;
            }
        }
    }
}

// Goal: the class's own bits: elements apart by pairs are summed in another order than in one
// chain.
TEST(AmxClass, DiffersFromTheOneChainOfVdpbf16ps) {
    if (!supported(NumericClass::kAvx512Bf16)) return;
    const test::RandomMatrix w(64, 512, 3);
    const test::RandomMatrix x(4, 512, 4);
    EXPECT_NE(product(PackedLinear::pack(w.rows(), NumericClass::kAmx),
                      x.rows(),
                      cpu::amx_portable_kernels()),
              product(PackedLinear::pack(w.rows(), NumericClass::kAvx512Bf16),
                      x.rows(),
                      cpu::kernels(NumericClass::kAvx512Bf16)));
}

TEST(AmxClass, Int8SumsAreExact) {
    for (const size_t depth : {1u, 4u, 63u, 64u, 65u, 200u}) {
        std::vector<int8_t> values(40 * depth);
        for (size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<int8_t>(i * 37 % 255 - 127);
        alignas(64) std::array<uint8_t, 256 * kPanelColumns> panel{};
        for (size_t k = 0; k < depth; ++k) {
            for (size_t j = 0; j < kPanelColumns; ++j) {
                panel[k / 4 * 4 * kPanelColumns + j * 4 + k % 4] =
                    static_cast<uint8_t>((k * 31 + j * 7) % 256);
            }
        }
        for (const test::KernelTable& table : test::amx_tables()) {
            const size_t num_rows = std::min<size_t>(table.kernels.shape.rows, 40);
            std::vector<int32_t> row_sum(num_rows);
            for (size_t r = 0; r < num_rows; ++r) {
                row_sum[r] = table.kernels.sum_int8(&values[r * depth], depth);
            }
            alignas(64) std::array<int32_t, 40 * kPanelColumns> out;
            cpu::Int8TileArguments a;
            a.x = values.data();
            a.x_stride = depth;
            a.num_rows = num_rows;
            a.panel = reinterpret_cast<const std::byte*>(panel.data());
            a.depth = depth;
            a.out = out.data();
            a.row_sum = row_sum.data();
            table.kernels.int8_tile(a);
            for (size_t i = 0; i < num_rows * kPanelColumns; ++i) {
                const size_t j = i % kPanelColumns;
                int32_t sum = 0;
                for (size_t k = 0; k < depth; ++k) {
                    sum += values[i / kPanelColumns * depth + k] *
                           (static_cast<int>((k * 31 + j * 7) % 256) - 128);
                }
                ASSERT_EQ(out[i], sum) << table.name << ", depth " << depth << ", sum " << i;
            }
        }
    }
}

struct AttentionCase {
    size_t num_heads;
    size_t latent;
    size_t rope;
    bool has_values;
};

// Tokens at the positions before num_positions, which have one state together.
std::vector<uint32_t> attend(const cpu::Kernels& kernels,
                             const AttentionCase& c,
                             std::span<const size_t> num_positions) {
    const size_t count = num_positions.back();
    const size_t num_heads = c.num_heads * num_positions.size();
    const test::RandomMatrix queries(num_heads, c.latent, 1);
    const test::RandomMatrix ropes(num_heads, std::max<size_t>(c.rope, 1), 2);
    const test::RandomMatrix keys(count, c.latent, 3);
    const test::RandomMatrix rope_keys(count, std::max<size_t>(c.rope, 1), 4);
    const test::RandomMatrix values(count, c.latent, 5);
    const Workspace workspace(heads_state_bytes(c.latent, c.rope));
    WorkspaceCursor cursor(workspace.bytes());
    cpu::HeadsState state = take_heads_state(c.latent, c.rope, cursor);
    state.num_heads = num_heads;
    std::vector<Bf16> out(num_heads * c.latent);
    attend_together(
        {queries.values.data(), ropes.values.data()},
        num_positions,
        kernels,
        state,
        [&](size_t first, size_t num_keys) {
            return cpu::AttendBlock{
                .ckv = keys.values.data() + first * c.latent,
                .kr = rope_keys.values.data() + first * c.rope,
                .values = c.has_values ? values.values.data() + first * c.latent : nullptr,
                .num_positions = num_keys,
                .scale = 0.125f,
                .is_cold = first == 0};
        },
        out.data());
    return test::bits_of(std::span<const Bf16>(out));
}

// Goal: as before, of tokens that share their keys but for some of the last block.
TEST(AmxClass, TokensTogetherHaveTheSameBitsEveryWay) {
    const AttentionCase c{3, 40, 6, false};
    const size_t counts[][4] = {{1, 2, 3, 4}, {60, 61, 62, 63}, {65, 66, 100, 128}};
    for (const auto& num_positions : counts) {
        const auto tables = test::amx_tables();
        const auto expected = attend(tables.front().kernels, c, num_positions);
        for (const test::KernelTable& table : tables) {
            EXPECT_EQ(attend(table.kernels, c, num_positions), expected)
                << table.name << ", up to " << num_positions[3] << " positions";
        }
    }
}

TEST(AmxClass, AttentionHasTheSameBitsEveryWay) {
    const AttentionCase cases[] = {{16, 64, 16, false},
                                   {8, 512, 64, false},
                                   {3, 40, 6, false},
                                   {1, 33, 7, false},
                                   {5, 80, 0, true}};
    for (const AttentionCase& c : cases) {
        for (const size_t count : {1, 2, 15, 16, 31, 33, 48, 63, 64, 65, 150}) {
            const auto tables = test::amx_tables();
            const auto expected = attend(tables.front().kernels, c, std::array{count});
            for (const test::KernelTable& table : tables) {
                EXPECT_EQ(attend(table.kernels, c, std::array{count}), expected)
                    << table.name << ", " << c.num_heads << " heads of " << c.latent << " + "
                    << c.rope << ", " << count << " positions";
            }
        }
    }
}

// Goal: no arithmetic of the caller's runs with the class's treatment of denormals.
TEST(AmxClass, LeavesDenormalsToOthers) {
    for (const test::KernelTable& table : test::amx_tables()) {
        sums_of(table.kernels, {0x3f80, 0x3f80}, 0.0f, 1);
        const float* const least = [] {
            static float value = 0x1p-126f;
            return &value;
        }();
        EXPECT_NE(*least * 0.5f, 0.0f) << table.name;
    }
}

TEST(AmxClass, SaysWhyItIsNotNative) {
    EXPECT_EQ(amx_support().is_offered, amx_support().reason.empty());
    if (!is_native(NumericClass::kAmx)) {
        const std::string reason(amx_support().reason);
        std::printf("AMX itself is not tested here: %s\n", reason.c_str());
        EXPECT_NE(best_numeric_class(), NumericClass::kAmx);
    } else {
        EXPECT_EQ(best_numeric_class(), NumericClass::kAmx);
    }
}

}  // namespace
}  // namespace afd::ops
