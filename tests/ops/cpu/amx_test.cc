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
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "ops/format/amx_support.h"
#include "ops/linear/panel_loop.h"
#include "tests/ops/cpu/amx_tables.h"
#include "tests/ops/cpu/token_attention.h"
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

TEST(AmxClass, AttentionHasTheSameBitsEveryWay) {
    const test::HeadsCase cases[] = {{16, 64, 16, false},
                                     {8, 512, 64, false},
                                     {3, 40, 6, false},
                                     {1, 33, 7, false},
                                     {5, 80, 0, true}};
    for (const test::HeadsCase& c : cases) {
        for (const size_t count : {1, 2, 15, 16, 31, 33, 48, 63, 64, 65, 150}) {
            const test::TokenAttention token(c, std::array{count});
            const auto tables = test::amx_tables();
            const auto expected = token.alone(tables.front().kernels);
            for (const test::KernelTable& table : tables) {
                EXPECT_EQ(token.alone(table.kernels), expected)
                    << table.name << ", " << c.num_heads << " heads of " << c.latent << " + "
                    << c.rope << ", " << count << " positions";
                ASSERT_FALSE(test::holds_software_tiles()) << table.name << " did not release them";
            }
        }
    }
}

// Several states, whole and partial steps of 32 positions, odd counts, tokens in no order.
const std::vector<std::vector<size_t>> kPositionsOfTokens = {{1, 2, 3, 4},
                                                             {5, 1, 33, 32, 2, 64},
                                                             {60, 61, 62, 63},
                                                             {31, 32, 33, 34, 35, 36, 37, 38, 39},
                                                             {65, 66, 100, 128},
                                                             {130, 191, 129, 161, 160, 130, 159}};

void expect_together_as_alone(const test::HeadsCase& c, const std::vector<size_t>& num_positions) {
    const test::TokenAttention tokens(c, num_positions);
    const auto tables = test::amx_tables();
    const auto expected = tokens.alone(tables.front().kernels);
    for (const test::KernelTable& table : tables) {
        EXPECT_EQ(tokens.together(table.kernels), expected)
            << table.name << ", " << c.num_heads << " heads of " << c.latent << " + " << c.rope
            << ", up to " << num_positions.back() << " positions";
        ASSERT_FALSE(test::holds_software_tiles()) << table.name << " did not release them";
    }
}

// Goal: tokens that go over their keys together have the bits of each of them alone, every way.
TEST(AmxClass, TokensTogetherHaveTheBitsOfEachAlone) {
    std::vector<test::HeadsCase> cases = {{3, 40, 6, false}, {16, 80, 32, false}, {7, 33, 0, true}};
    for (size_t num_heads = 1; num_heads <= cpu::kHeadsMax; ++num_heads) {
        cases.push_back({num_heads, 64, num_heads % 2 * 32, num_heads % 2 == 0});
    }
    for (const test::HeadsCase& c : cases) {
        for (const std::vector<size_t>& num_positions : kPositionsOfTokens) {
            expect_together_as_alone(c, num_positions);
        }
    }
}

// Goal: the same where a sum's sign is all that is left of it: weights and values so small that
// products are denormal.
TEST(AmxClass, TokensTogetherHaveTheSignsOfEachAlone) {
    const test::HeadsCase c{4, 64, 0, true, 16.0f, 1e-34f};
    for (const std::vector<size_t>& num_positions : kPositionsOfTokens) {
        expect_together_as_alone(c, num_positions);
    }
}

// Goal: a token is not changed by positions behind its own, whatever is there, nor by what tokens
// that come to it have left.
TEST(AmxClass, TokensTogetherSeeNothingOfLaterOnes) {
    const test::HeadsCase c{3, 64, 32, false};
    const size_t token_size = c.num_heads * c.latent;
    for (const size_t longest : {6u, 7u, 34u, 64u, 101u}) {
        std::vector<size_t> num_positions;
        for (size_t i = 0; i < 6; ++i) num_positions.push_back(longest - i);
        for (int order = 0; order < 2; ++order) {
            test::TokenAttention tokens(c, num_positions);
            tokens.set_position(longest - 1, Bf16{0x7fc0});
            tokens.set_position(longest - 2, Bf16{0x7f80});
            const auto tables = test::amx_tables();
            const auto expected = tokens.alone(tables.front().kernels);
            for (const test::KernelTable& table : tables) {
                const auto bits = tokens.together(table.kernels);
                for (size_t i = 0; i < bits.size(); ++i) {
                    if (num_positions[i / token_size] > longest - 2) continue;
                    ASSERT_EQ(bits[i], expected[i])
                        << table.name << ", up to " << longest << " positions, element " << i;
                }
            }
            std::reverse(num_positions.begin(), num_positions.end());
        }
    }
}

// One head's result of two positions: a score of 0 and a value of 0, and a score of -difference and
// a value of 2^100.
float with_late_position(const cpu::Kernels& kernels, float difference) {
    constexpr size_t kWidth = 32;
    std::array<Bf16, kWidth> query{};
    std::array<Bf16, 2 * kWidth> keys{};
    std::array<Bf16, 2 * kWidth> values{};
    query[0] = from_float(1.0f);
    keys[kWidth] = from_float(-1.0f);
    std::fill_n(values.begin() + kWidth, kWidth, from_float(0x1p100f));
    const Workspace workspace(heads_state_bytes(kWidth, 0));
    WorkspaceCursor cursor(workspace.bytes());
    cpu::HeadsState state = take_heads_state(kWidth, 0, cursor);
    state.num_heads = 1;
    kernels.begin_heads({.query = query.data()}, state);
    cpu::AttendBlock block;
    block.ckv = keys.data();
    block.values = values.data();
    block.num_positions = 2;
    block.scale = difference;
    kernels.attend_block(block, state);
    std::array<Bf16, kWidth> out;
    kernels.finish_heads(state, out.data());
    return to_float(out[0]);
}

// Goal: a weight that only its rounding to bf16 would bring up to 2^-126 is zero, every way.
// 2^-126 is exp(-87.33654).
TEST(AmxClass, WeightsBelowTheLeastNormalNumberAreZero) {
    for (const test::KernelTable& table : test::amx_tables()) {
        EXPECT_EQ(with_late_position(table.kernels, 87.3370f), 0.0f) << table.name;
        EXPECT_EQ(with_late_position(table.kernels, 87.3366f), 0.0f) << table.name;
        EXPECT_EQ(with_late_position(table.kernels, 87.3360f), 0x1p-26f) << table.name;
    }
}

// Goal: quotients are rounded as divisions are. Method: sums, and values that are them times what
// lies halfway between two bf16 numbers, so that the last bit of a quotient decides.
TEST(AmxClass, QuotientsAreThoseOfDivisions) {
    std::mt19937 engine(6);
    std::uniform_real_distribution<float> sums(1.0f, 64.0f);
    alignas(64) std::array<float, cpu::kHeadsMax * 64> o;
    alignas(64) std::array<float, cpu::kHeadsMax> sum;
    cpu::HeadsState state;
    state.num_heads = cpu::kHeadsMax;
    state.latent = 50;
    state.o_stride = 64;
    state.o = o.data();
    state.sum = sum.data();
    for (int round = 0; round < 100; ++round) {
        for (float& value : sum) value = sums(engine);
        for (size_t i = 0; i < o.size(); ++i) {
            const uint32_t exponent = i % 3 == 0 ? 0x1f000000 : 0x3f000000;
            const auto bits = static_cast<uint32_t>(engine()) & 0x807f0000;
            const auto half = std::bit_cast<float>(bits | exponent | 0x8000);
            o[i] = i % 32 == 31 ? -0.0f : half * sum[i / 64];
        }
        for (const test::KernelTable& table : test::amx_tables()) {
            std::array<Bf16, cpu::kHeadsMax * 50> latent;
            table.kernels.finish_heads(state, latent.data());
            for (size_t i = 0; i < latent.size(); ++i) {
                const float quotient = o[i / 50 * 64 + i % 50] / sum[i / 50];
                ASSERT_EQ(latent[i].bits, from_float(quotient).bits) << table.name;
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
