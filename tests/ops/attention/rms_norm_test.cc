// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/reference/rms_norm.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using test::RandomMatrix;

// Bound: the fp32 sum of squares of n values has relative error below n · 2^-24, its root half of
// that; divisions and products add 2^-23. A value within that of a rounding boundary may round to
// the other neighbour, and the second rounding may do so again: 2 bf16 spacings, 2 · 2^-7.
void expect_close(const reference::Matrix& want, const RandomMatrix& have) {
    for (size_t i = 0; i < want.values.size(); ++i) {
        const double value = static_cast<double>(to_float(have.values[i]));
        ASSERT_LE(std::fabs(value - want.values[i]), std::fabs(want.values[i]) * 2 / 128 + 1e-30)
            << i;
    }
}

TEST(RmsNorm, MatchesReferenceForUnevenSizes) {
    for (const size_t hidden : {1u, 15u, 16u, 17u, 192u, 1000u}) {
        const RandomMatrix x(5, hidden, 1);
        const RandomMatrix gamma(1, hidden, 2);
        RandomMatrix y(5, hidden, 3);
        rms_norm(x.rows(), gamma.values.data(), 1e-6f, y.mutable_rows());
        expect_close(
            reference::rms_norm(
                reference::widen(x.rows()), gamma.values, 1e-6, reference::Rounding::kBf16),
            y);
        rms_norm_scaled(x.rows(), gamma.values.data(), 1e-6f, 0.5f, y.mutable_rows());
        expect_close(
            reference::rms_norm_scaled(
                reference::widen(x.rows()), gamma.values, 1e-6, 0.5, reference::Rounding::kBf16),
            y);
    }
}

// Distinguishes the two norms: one rounds between the division and gamma, the other does not.
TEST(RmsNorm, RoundsTwiceInTheDecoderAndOnceInsideMla) {
    const RandomMatrix x(64, 64, 4);
    const RandomMatrix gamma(1, 64, 5);
    RandomMatrix twice(64, 64, 6);
    RandomMatrix once(64, 64, 7);
    rms_norm(x.rows(), gamma.values.data(), 1e-6f, twice.mutable_rows());
    rms_norm_scaled(x.rows(), gamma.values.data(), 1e-6f, 1.0f, once.mutable_rows());
    size_t different = 0;
    for (size_t i = 0; i < once.values.size(); ++i) {
        different += once.values[i] == twice.values[i] ? 0 : 1;
    }
    EXPECT_GT(different, once.values.size() / 20);
}

TEST(RmsNorm, IsRowInvariantAndMayWorkInPlace) {
    const RandomMatrix x(32, 203, 8);
    const RandomMatrix gamma(1, 203, 9);
    test::expect_row_invariant(x.num_rows, [&](std::span<const size_t> rows, Parallel&) {
        RandomMatrix picked = x.pick(rows);
        rms_norm(picked.rows(), gamma.values.data(), 1e-6f, picked.mutable_rows());
        return test::bits_of(std::span<const Bf16>(picked.values));
    });
}

// Rows in fp32. Oracle: the value in double; the three parts have 24 bits of it.
TEST(RmsNorm, OfFp32RowsIsSplitWithoutLoss) {
    for (const size_t hidden : {1u, 17u, 192u, 1000u}) {
        const RandomMatrix gamma(1, hidden, 2);
        std::vector<float> x;
        for (const Bf16 value : RandomMatrix(5, hidden, 1).values) {
            x.push_back(to_float(value) * 1.000123f);
        }
        const auto rows = make_rows<const float>(x.data(), 5, hidden);
        RandomMatrix once(5, hidden, 3);
        RandomMatrix high(5, hidden, 3);
        RandomMatrix middle(5, hidden, 3);
        RandomMatrix low(5, hidden, 3);
        rms_norm(rows, gamma.values.data(), 1e-6f, once.mutable_rows());
        rms_norm(rows,
                 gamma.values.data(),
                 1e-6f,
                 {high.mutable_rows(), middle.mutable_rows(), low.mutable_rows()});
        EXPECT_EQ(once.values, high.values);
        for (size_t t = 0; t < 5; ++t) {
            double squares = 0;
            for (size_t i = 0; i < hidden; ++i) squares += std::pow(double{rows.row(t)[i]}, 2);
            const double root = std::sqrt(squares / static_cast<double>(hidden) + 1e-6);
            for (size_t i = 0; i < hidden; ++i) {
                const double want = rows.row(t)[i] / root * double{to_float(gamma.values[i])};
                const size_t at = t * hidden + i;
                const double have = double{to_float(high.values[at])} +
                                    double{to_float(middle.values[at])} +
                                    double{to_float(low.values[at])};
                // The sum of squares: n · 2^-24, halved by the root; a division and a product.
                ASSERT_LE(std::fabs(have - want),
                          std::fabs(want) * (static_cast<double>(hidden) / 2 + 4) * 0x1p-24)
                    << t << ", " << i;
            }
        }
    }
}

TEST(ResidualAdd, InFp32RoundsNothingToBf16) {
    const RandomMatrix delta(3, 77, 10);
    std::vector<float> residual(delta.values.size(), 1.000001f);
    residual_add(delta.rows(), make_rows(residual.data(), 3, 77));
    for (size_t i = 0; i < residual.size(); ++i) {
        EXPECT_EQ(residual[i], 1.000001f + to_float(delta.values[i]));
    }
}

TEST(ResidualAdd, RoundsTheFp32SumOnce) {
    const RandomMatrix delta(3, 77, 10);
    RandomMatrix residual(3, 77, 11);
    const RandomMatrix before = residual;
    residual_add(delta.rows(), residual.mutable_rows());
    for (size_t i = 0; i < delta.values.size(); ++i) {
        EXPECT_EQ(residual.values[i],
                  from_float(to_float(before.values[i]) + to_float(delta.values[i])));
    }
}

}  // namespace
}  // namespace afd::ops
