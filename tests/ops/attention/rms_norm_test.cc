// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>

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
