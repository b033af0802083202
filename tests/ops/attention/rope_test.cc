// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/rope.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

// Oracle: libm in double on the same fp32 angle; our sine and cosine err below 1e-15, so the
// table differs from it by at most one rounding to fp32.
TEST(RopeTable, HoldsCosAndSinOfTheFp32Angle) {
    const RopeConfig config{.dim = 64, .theta = 10000, .num_positions = 5000, .yarn = {}};
    const Result<RopeTable> table = RopeTable::make(config);
    ASSERT_TRUE(table.ok());
    for (const size_t position : {0u, 1u, 2u, 63u, 1000u, 4999u}) {
        for (size_t i = 0; i < 32; ++i) {
            const auto frequency =
                static_cast<float>(1.0 / std::pow(10000.0, static_cast<double>(i) / 32.0));
            const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
            EXPECT_NEAR(table.value().cos(position)[i], std::cos(angle), 6e-8);
            EXPECT_NEAR(table.value().sin(position)[i], std::sin(angle), 6e-8);
        }
    }
}

TEST(RopeTable, KeepsItsAccuracyAtLargeAngles) {
    const RopeConfig config{.dim = 2, .theta = 10000, .num_positions = 200001, .yarn = {}};
    const Result<RopeTable> table = RopeTable::make(config);
    ASSERT_TRUE(table.ok());
    for (size_t position = 150000; position <= 200000; position += 777) {
        const auto angle = static_cast<double>(position);
        EXPECT_NEAR(table.value().cos(position)[0], std::cos(angle), 6e-8);
        EXPECT_NEAR(table.value().sin(position)[0], std::sin(angle), 6e-8);
    }
}

// Oracle: the YaRN paper's two ends: fast waves keep their frequency, slow ones are divided by the
// factor; the attention factor multiplies both tables.
TEST(RopeTable, YarnKeepsFastWavesInterpolatesSlowOnesAndScales) {
    const YarnScaling yarn{.factor = 40,
                           .original_max_positions = 4096,
                           .beta_fast = 32,
                           .beta_slow = 1,
                           .mscale = 1,
                           .mscale_all_dim = 0};
    const RopeConfig config{.dim = 64, .theta = 10000, .num_positions = 2, .yarn = yarn};
    const Result<RopeTable> table = RopeTable::make(config);
    ASSERT_TRUE(table.ok());
    const double scale = 0.1 * std::log(40.0) + 1.0;
    EXPECT_NEAR(table.value().cos(0)[0], scale, 1e-6);
    EXPECT_NEAR(table.value().sin(1)[0], scale * std::sin(1.0), 1e-6);
    const double slowest = std::pow(10000.0, -62.0 / 64.0) / 40.0;
    EXPECT_NEAR(table.value().sin(1)[31] / (scale * slowest), 1.0, 1e-6);
    // Middle of the ramp, from the paper's formula: pairs 10 ... 23 for these numbers.
    const double ramp = (16.0 - 10.0) / (23.0 - 10.0);
    const double plain = std::pow(10000.0, -32.0 / 64.0);
    const double middle = plain / 40.0 * ramp + plain * (1 - ramp);
    EXPECT_NEAR(table.value().sin(1)[16] / (scale * std::sin(middle)), 1.0, 1e-6);
}

// Goal: the frequencies that models have been served with stay, on every machine. Oracle: their
// bits. Without scaling these are theta^(-2i / 16) rounded once.
TEST(RopeFrequencies, HaveTheirBits) {
    const auto bits = [](double theta, const std::optional<YarnScaling>& yarn) {
        std::vector<uint32_t> all;
        for (const float value : rope_frequencies({.dim = 16, .theta = theta, .yarn = yarn})) {
            all.push_back(std::bit_cast<uint32_t>(value));
        }
        return all;
    };
    using Bits = std::vector<uint32_t>;
    EXPECT_EQ(bits(10000, {}),
              (Bits{0x3f800000,
                    0x3ea1e89b,
                    0x3dcccccd,
                    0x3d0186e2,
                    0x3c23d70a,
                    0x3b4f3e37,
                    0x3a83126f,
                    0x39a5cb5f}));
    EXPECT_EQ(bits(1e6, {}),
              (Bits{0x3f800000,
                    0x3e361887,
                    0x3d0186e2,
                    0x3bb8449c,
                    0x3a83126f,
                    0x393a7753,
                    0x3804a2b3,
                    0x36bcb0c1}));
    EXPECT_EQ(bits(5e6, {}),
              (Bits{0x3f800000,
                    0x3e14e963,
                    0x3cad3d5d,
                    0x3b498ad3,
                    0x39ea77fe,
                    0x38886320,
                    0x371eab4b,
                    0x35b8975d}));
    EXPECT_EQ(bits(10000, YarnScaling{.factor = 40}),
              (Bits{0x3f800000,
                    0x3ea1e89b,
                    0x3dcccccd,
                    0x3cc3e8d0,
                    0x3ba7ef9e,
                    0x3a5ec948,
                    0x37d1b717,
                    0x3704a2b3}));
    EXPECT_EQ(bits(50000, YarnScaling{.factor = 32, .beta_fast = 1}),
              (Bits{0x3f800000,
                    0x3e84673d,
                    0x3d88f540,
                    0x3c8dab61,
                    0x3b928aff,
                    0x38179588,
                    0x371ccc77,
                    0x36223151}));
    EXPECT_EQ(bits(150000, YarnScaling{.factor = 32, .truncate = false}),
              (Bits{0x3f800000,
                    0x3e66d3fa,
                    0x3d502195,
                    0x3bdea840,
                    0x39ef543c,
                    0x37989328,
                    0x3689928c,
                    0x35781728}));
    EXPECT_EQ(yarn_mscale(40, 1), 0x1.5e6f70bd6e39cp+0);
    EXPECT_EQ(yarn_mscale(32, 1), 0x1.58b90bfbe8e7cp+0);
}

TEST(RopeTable, EqualMscalesCancel) {
    const YarnScaling yarn{.factor = 40, .mscale = 0.707, .mscale_all_dim = 0.707};
    const RopeConfig config{.dim = 8, .theta = 10000, .num_positions = 1, .yarn = yarn};
    const Result<RopeTable> table = RopeTable::make(config);
    ASSERT_TRUE(table.ok());
    EXPECT_EQ(table.value().cos(0)[0], 1.0f);
}

// Oracle: the formula of the paper. The first factor stretches every wave of its pair.
TEST(RopeTable, LongRopeDividesEachFrequencyByItsFactorAndScales) {
    RopeConfig config{.dim = 8, .theta = 10000, .num_positions = 3, .yarn = {}};
    config.long_rope = LongRope{.factors = {1.0, 1.5, 20.0, 64.0}, .scale = 1.25};
    const Result<RopeTable> table = RopeTable::make(config);
    ASSERT_TRUE(table.ok());
    for (size_t i = 0; i < 4; ++i) {
        const double frequency =
            std::pow(10000.0, -static_cast<double>(i) / 4.0) / config.long_rope->factors[i];
        EXPECT_NEAR(table.value().cos(2)[i], 1.25 * std::cos(2 * frequency), 2e-7);
        EXPECT_NEAR(table.value().sin(2)[i], 1.25 * std::sin(2 * frequency), 2e-7);
    }
    config.long_rope->factors.pop_back();
    EXPECT_EQ(RopeTable::make(config).error().message,
              "rope_scaling has 3 factors; they must be 4, one for each pair, and not with yarn");
    config.long_rope->factors.push_back(0.0);
    EXPECT_EQ(RopeTable::make(config).error().message,
              "a factor of rope_scaling is 0.000000; it must be positive");
}

TEST(RopeTable, RefusesAnOddDimensionByName) {
    const Result<RopeTable> table = RopeTable::make({.dim = 7, .num_positions = 4, .yarn = {}});
    ASSERT_FALSE(table.ok());
    EXPECT_EQ(table.error().message, "rope dim is 7; it must be even, at least 2");
}

TEST(RopeTable, RefusesWhatWouldNotFitBeforeItTakesMemory) {
    const Result<RopeTable> table =
        RopeTable::make({.dim = 1u << 20, .num_positions = 1u << 24, .yarn = {}});
    ASSERT_FALSE(table.ok());
    EXPECT_EQ(
        table.error().message,
        "the rope table of 16777216 positions (max_position_embeddings) has 524288 angles for "
        "each; at most 1073741824 in all are supported");
}

TEST(Rope, TurnsInterleavedPairsIntoHalfLayout) {
    const RopeConfig config{.dim = 16, .theta = 100, .num_positions = 50, .yarn = {}};
    const Result<RopeTable> table = RopeTable::make(config);
    ASSERT_TRUE(table.ok());
    const test::RandomMatrix x(1, 16, 1);
    std::vector<Bf16> out(16);
    rope(x.values.data(), table.value(), 49, out.data());
    for (size_t i = 0; i < 8; ++i) {
        const float even = to_float(x.values[2 * i]);
        const float odd = to_float(x.values[2 * i + 1]);
        const float c = table.value().cos(49)[i];
        const float s = table.value().sin(49)[i];
        EXPECT_EQ(out[i], from_float(even * c - odd * s));
        EXPECT_EQ(out[i + 8], from_float(odd * c + even * s));
    }
    rope(x.values.data(), table.value(), 0, out.data());
    for (size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(out[i], x.values[2 * i]);
        EXPECT_EQ(out[i + 8], x.values[2 * i + 1]);
    }
}

// Oracle: the rotation of pairs, of the same elements in the other order.
TEST(Rope, HalfLayoutRotatesAsPairsDoAndInPlace) {
    const RopeTable table =
        RopeTable::make({.dim = 12, .theta = 10000, .num_positions = 100, .yarn = {}}).value();
    const test::RandomMatrix pairs(1, 12, 3);
    test::RandomMatrix halves(1, 12, 4);
    for (size_t i = 0; i < 6; ++i) {
        halves.values[i] = pairs.values[2 * i];
        halves.values[i + 6] = pairs.values[2 * i + 1];
    }
    test::RandomMatrix want(1, 12, 5);
    rope(pairs.values.data(), table, 77, want.values.data());
    rope_half(halves.values.data(), table, 77, halves.values.data());
    EXPECT_EQ(halves.values, want.values);
}

}  // namespace
}  // namespace afd::ops
