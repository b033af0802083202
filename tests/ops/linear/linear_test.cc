// SPDX-License-Identifier: Apache-2.0

#include "ops/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/reference/linear.h"
#include "ops/tensor/math.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using test::RandomMatrix;
AFD_FOR_EVERY_CLASS(Linear);

struct Shape {
    size_t num_rows;
    size_t num_outputs;
    size_t depth;
};

// One tile and many, every tile height, columns and depths that are no multiple of anything.
const Shape kShapes[] = {{1, 1, 1},
                         {1, 33, 2},
                         {2, 64, 17},
                         {3, 130, 64},
                         {4, 31, 65},
                         {5, 32, 192},
                         {6, 75, 67},
                         {7, 16, 31},
                         {8, 96, 100},
                         {9, 40, 3},
                         {10, 32, 32},
                         {11, 48, 129},
                         {12, 192, 64},
                         {13, 100, 77},
                         {37, 65, 48}};

// Bound: a chain of K fp32 sums errs by less than K · 2^-23 · Σ|x·w| (2^-23 and not 2^-24 because
// vdpbf16ps rounds within a pair, too).
TEST_P(Linear, MatchesReferenceWithinTheErrorOfAnFp32Chain) {
    for (const auto& [num_rows, num_outputs, depth] : kShapes) {
        const RandomMatrix x(num_rows, depth, 1);
        const RandomMatrix w(num_outputs, depth, 2);
        const PackedLinear packed = PackedLinear::pack(w.rows(), GetParam());
        std::vector<float> y(num_rows * num_outputs, NAN);
        SerialParallel serial;
        linear_f32(x.rows(), packed, make_rows(y.data(), num_rows, num_outputs), serial);
        const reference::Matrix want = reference::linear_f32(reference::widen(x.rows()), w.rows());
        for (size_t i = 0; i < num_rows; ++i) {
            for (size_t n = 0; n < num_outputs; ++n) {
                double magnitude = 0;
                for (size_t k = 0; k < depth; ++k) {
                    magnitude += std::fabs(static_cast<double>(to_float(x.rows().row(i)[k])) *
                                           static_cast<double>(to_float(w.rows().row(n)[k])));
                }
                const double error =
                    std::fabs(static_cast<double>(y[i * num_outputs + n]) - want.at(i, n));
                ASSERT_LE(error, static_cast<double>(depth) * 0x1p-23 * magnitude)
                    << num_rows << " rows, [" << num_outputs << ", " << depth << "], output " << i
                    << "," << n;
            }
        }
    }
}

TEST_P(Linear, RoundsTheFp32ResultOnceAndLeavesTheGapsAlone) {
    const RandomMatrix x(7, 45, 3);
    const RandomMatrix w(50, 45, 4);
    const PackedLinear packed = PackedLinear::pack(w.rows(), GetParam());
    SerialParallel serial;
    std::vector<float> wide(7 * 50);
    linear_f32(x.rows(), packed, make_rows(wide.data(), 7, 50), serial);
    const Bf16 sentinel{0x1234};
    std::vector<Bf16> y(7 * 60, sentinel);
    linear(x.rows(), packed, {y.data(), 7, 50, 60}, serial);
    for (size_t i = 0; i < 7; ++i) {
        for (size_t n = 0; n < 60; ++n) {
            const Bf16 want = n < 50 ? from_float(wide[i * 50 + n]) : sentinel;
            ASSERT_EQ(y[i * 60 + n], want) << i << "," << n;
        }
    }
}

TEST_P(Linear, IsRowInvariant) {
    const RandomMatrix x(32, 131, 5);
    const RandomMatrix w(203, 131, 6);
    const PackedLinear packed = PackedLinear::pack(w.rows(), GetParam());
    test::expect_row_invariant(x.num_rows, [&](std::span<const size_t> rows, Parallel& parallel) {
        const RandomMatrix picked = x.pick(rows);
        std::vector<float> y(rows.size() * w.num_rows);
        linear_f32(picked.rows(), packed, make_rows(y.data(), rows.size(), w.num_rows), parallel);
        return test::bits_of(std::span<const float>(y));
    });
}

TEST_P(Linear, TransposedPackingIsTheSameMatrix) {
    const RandomMatrix x(3, 21, 7);
    const RandomMatrix w(45, 21, 8);
    RandomMatrix transposed(21, 45, 9);
    for (size_t n = 0; n < 45; ++n) {
        for (size_t k = 0; k < 21; ++k) transposed.values[k * 45 + n] = w.values[n * 21 + k];
    }
    SerialParallel serial;
    RandomMatrix y(3, 45, 10);
    RandomMatrix z(3, 45, 11);
    linear(x.rows(), PackedLinear::pack(w.rows(), GetParam()), y.mutable_rows(), serial);
    linear(x.rows(),
           PackedLinear::pack_transposed(transposed.rows(), GetParam()),
           z.mutable_rows(),
           serial);
    EXPECT_EQ(y.values, z.values);
}

// Oracle: two plain linears and the scalar silu; the interleaved packing must not change a bit.
TEST_P(Linear, SwigluEqualsGateAndUpComputedApart) {
    for (const size_t intermediate : {1u, 16u, 40u, 64u}) {
        const RandomMatrix x(9, 51, 12);
        const RandomMatrix gate(intermediate, 51, 13);
        const RandomMatrix up(intermediate, 51, 14);
        RandomMatrix g(9, intermediate, 15);
        RandomMatrix u(9, intermediate, 16);
        RandomMatrix h(9, intermediate, 17);
        SerialParallel serial;
        linear(x.rows(), PackedLinear::pack(gate.rows(), GetParam()), g.mutable_rows(), serial);
        linear(x.rows(), PackedLinear::pack(up.rows(), GetParam()), u.mutable_rows(), serial);
        swiglu(x.rows(),
               PackedLinear::pack_gate_up(gate.rows(), up.rows(), GetParam()),
               h.mutable_rows(),
               serial);
        for (size_t i = 0; i < h.values.size(); ++i) {
            const float want = silu(to_float(g.values[i])) * to_float(u.values[i]);
            ASSERT_EQ(h.values[i], from_float(want)) << intermediate << " " << i;
        }
    }
}

// Odd depths end in half a pair: what lies behind a row in memory must not be read into it.
TEST_P(Linear, ANanInOneRowLeavesTheOthersAlone) {
    for (const size_t num_rows : {3u, 13u}) {
        RandomMatrix x(num_rows, 65, 21);
        const RandomMatrix w(40, 65, 22);
        const PackedLinear packed = PackedLinear::pack(w.rows(), GetParam());
        SerialParallel serial;
        RandomMatrix clean(num_rows, 40, 23);
        linear(x.rows(), packed, clean.mutable_rows(), serial);
        std::fill_n(x.mutable_rows().row(1), 65, Bf16{0x7fc0});
        RandomMatrix y(num_rows, 40, 24);
        linear(x.rows(), packed, y.mutable_rows(), serial);
        for (size_t i = 0; i < num_rows; ++i) {
            for (size_t n = 0; n < 40; ++n) {
                if (i == 1) {
                    ASSERT_TRUE(std::isnan(to_float(y.rows().row(i)[n])));
                } else {
                    ASSERT_EQ(y.rows().row(i)[n], clean.rows().row(i)[n]) << i << "," << n;
                }
            }
        }
    }
}

TEST_P(Linear, AcceptsZeroRows) {
    const RandomMatrix w(8, 8, 18);
    const PackedLinear packed = PackedLinear::pack(w.rows(), GetParam());
    SerialParallel serial;
    linear(Rows<const Bf16>{nullptr, 0, 8, 8}, packed, {nullptr, 0, 8, 8}, serial);
    EXPECT_EQ(packed.num_outputs(), 8u);
}

// The defined chains, written out for one output: what each class promises about K's order.
TEST(LinearChain, PortableMultipliesThenAddsInOrder) {
    const RandomMatrix x(1, 301, 19);
    const RandomMatrix w(1, 301, 20);
    float want = 0;
    for (size_t k = 0; k < 301; ++k) want = want + to_float(x.values[k]) * to_float(w.values[k]);
    float y = 0;
    SerialParallel serial;
    linear_f32(x.rows(),
               PackedLinear::pack(w.rows(), NumericClass::kPortable),
               make_rows(&y, 1, 1),
               serial);
    EXPECT_EQ(y, want);
}

}  // namespace
}  // namespace afd::ops
