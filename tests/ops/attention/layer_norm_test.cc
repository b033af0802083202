// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/reference/layer_norm.h"
#include "tests/ops/cpu/kernel_tables.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using test::RandomMatrix;

constexpr float kEpsilon = 1e-5f;

// Rows that are far from zero, as a residual stream may be.
RandomMatrix shifted(size_t rows, size_t cols, uint32_t seed) {
    RandomMatrix x(rows, cols, seed);
    for (Bf16& value : x.values) value = from_float(to_float(value) + 3.0f);
    return x;
}

// Bound: both fp32 sums of n values err by at most n · 2^-24 of their magnitude, here of values up
// to 8; the quotient is of the order of 1. One rounding to bf16 adds half a spacing, and a value
// near a boundary may go to the other neighbour.
TEST(LayerNorm, MatchesReferenceForUnevenSizes) {
    for (const size_t hidden : {1u, 15u, 16u, 17u, 192u, 1000u}) {
        const RandomMatrix x = shifted(5, hidden, 1);
        const RandomMatrix gamma(1, hidden, 2);
        const RandomMatrix beta(1, hidden, 3);
        RandomMatrix y(5, hidden, 4);
        layer_norm(x.rows(), gamma.values.data(), beta.values.data(), kEpsilon, y.mutable_rows());
        const reference::Matrix want = reference::layer_norm(reference::widen(x.rows()),
                                                             gamma.values,
                                                             beta.values,
                                                             static_cast<double>(kEpsilon),
                                                             reference::Rounding::kBf16);
        for (size_t i = 0; i < want.values.size(); ++i) {
            const double have = static_cast<double>(to_float(y.values[i]));
            ASSERT_LE(std::fabs(have - want.values[i]),
                      std::fabs(want.values[i]) / 128 + 0x1p-24 * 8 * static_cast<double>(hidden))
                << hidden << ": " << i;
        }
    }
}

// Against RMSNorm: the mean counts for nothing, and beta alone is left of a row that is one value.
TEST(LayerNorm, TakesTheMeanAwayAndAddsBeta) {
    const size_t hidden = 100;
    RandomMatrix x(1, hidden, 1);
    for (Bf16& value : x.values) value = from_float(2.5f);
    const RandomMatrix gamma(1, hidden, 2);
    const RandomMatrix beta(1, hidden, 3);
    RandomMatrix y(1, hidden, 4);
    layer_norm(x.rows(), gamma.values.data(), beta.values.data(), kEpsilon, y.mutable_rows());
    EXPECT_EQ(y.values, beta.values);
}

TEST(LayerNorm, IsRowInvariantAndMayWorkInPlace) {
    const RandomMatrix x = shifted(32, 203, 8);
    const RandomMatrix gamma(1, 203, 9);
    const RandomMatrix beta(1, 203, 10);
    test::expect_row_invariant(x.num_rows, [&](std::span<const size_t> rows, Parallel&) {
        RandomMatrix picked = x.pick(rows);
        layer_norm(picked.rows(),
                   gamma.values.data(),
                   beta.values.data(),
                   kEpsilon,
                   picked.mutable_rows());
        return test::bits_of(std::span<const Bf16>(picked.values));
    });
}

// Every table of this processor; oracle: the first one, portable.
TEST(LayerNorm, HasTheSameBitsInEveryClass) {
    const RandomMatrix x = shifted(1, 1003, 8);
    const RandomMatrix gamma(1, 1003, 9);
    const RandomMatrix beta(1, 1003, 10);
    std::vector<float> wide;
    for (const Bf16 value : x.values) wide.push_back(to_float(value) * 1.000123f);
    std::vector<uint32_t> first;
    for (const test::KernelTable& table : test::every_kernel_table()) {
        SCOPED_TRACE(table.name);
        const cpu::ResidualKernels& kernels = table.kernels.residual;
        RandomMatrix y(4, 1003, 4);
        const cpu::RowMoments of_x = kernels.moments(x.values.data(), 1003);
        const cpu::RowMoments of_wide = kernels.moments_f32(wide.data(), 1003);
        const Rows<Bf16> out = y.mutable_rows();
        cpu::LayerNormRow norm{.mean = of_x.mean,
                               .root = std::sqrt(of_x.variance),
                               .gamma = gamma.values.data(),
                               .beta = beta.values.data()};
        kernels.layer_norm_row(x.values.data(), norm, 1003, out.row(0));
        norm.mean = of_wide.mean;
        kernels.layer_norm_row_f32(
            wide.data(), norm, 1003, out.row(1), {.middle = out.row(2), .low = out.row(3)});
        std::vector<uint32_t> bits = test::bits_of(std::span<const Bf16>(y.values));
        for (const float value : {of_x.mean, of_x.variance, of_wide.mean, of_wide.variance}) {
            bits.push_back(std::bit_cast<uint32_t>(value));
        }
        if (first.empty()) first = bits;
        EXPECT_EQ(bits, first);
    }
}

// Rows in fp32. Oracle: the value in double; the three parts have 24 bits of it.
TEST(LayerNorm, OfFp32RowsIsSplitWithoutLoss) {
    for (const size_t hidden : {1u, 17u, 192u, 1000u}) {
        const RandomMatrix gamma(1, hidden, 2);
        const RandomMatrix beta(1, hidden, 3);
        std::vector<float> x;
        for (const Bf16 value : shifted(5, hidden, 1).values) {
            x.push_back(to_float(value) * 1.000123f);
        }
        const auto rows = make_rows<const float>(x.data(), 5, hidden);
        RandomMatrix once(5, hidden, 4);
        RandomMatrix high(5, hidden, 4);
        RandomMatrix middle(5, hidden, 4);
        RandomMatrix low(5, hidden, 4);
        const Bf16* g = gamma.values.data();
        const Bf16* b = beta.values.data();
        layer_norm(rows, g, b, kEpsilon, {.high = once.mutable_rows(), .middle = {}, .low = {}});
        layer_norm(
            rows, g, b, kEpsilon, {high.mutable_rows(), middle.mutable_rows(), low.mutable_rows()});
        EXPECT_EQ(once.values, high.values);
        reference::Matrix wide(5, hidden);
        for (size_t i = 0; i < x.size(); ++i) wide.values[i] = static_cast<double>(x[i]);
        const reference::Matrix want = reference::layer_norm(wide,
                                                             gamma.values,
                                                             beta.values,
                                                             static_cast<double>(kEpsilon),
                                                             reference::Rounding::kNone);
        for (size_t i = 0; i < x.size(); ++i) {
            const double have = double{to_float(high.values[i])} +
                                double{to_float(middle.values[i])} +
                                double{to_float(low.values[i])};
            ASSERT_LE(std::fabs(have - want.values[i]),
                      (static_cast<double>(hidden) + 4) * 8 * 0x1p-24)
                << hidden << ": " << i;
        }
    }
}

}  // namespace
}  // namespace afd::ops
