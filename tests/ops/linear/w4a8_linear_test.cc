// SPDX-License-Identifier: Apache-2.0

// Products of int8 rows with int4 weights (ops/format/int4_rows.h), which have the same bits in
// every numeric class.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/linear/linear.h"
#include "ops/linear/quantise.h"
#include "tests/ops/linear/quantised_weights.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using test::kInt4Formats;
using test::RandomInt4;
using test::RandomMatrix;
AFD_FOR_EVERY_CLASS(W4a8Linear);

constexpr size_t kW4a8Outputs = 75;  // Three panels, the last one not full.

std::vector<float> w4a8_sums(const RandomMatrix& x,
                             const PackedLinear& weight,
                             Parallel& parallel) {
    const Workspace workspace(quantised_input_bytes(x.num_rows, x.num_cols));
    LinearInput input = quantised_input(x.rows(), workspace.bytes(), parallel);
    const size_t group_size = int4_group_size(weight.format());
    const size_t stride = (w4a8_row_bytes(x.num_cols, group_size) + 63) / 64 * 64;
    const Workspace arranged(x.num_rows * stride);
    auto* values = reinterpret_cast<int8_t*>(arranged.bytes().data());
    for (size_t row = 0; row < x.num_rows; ++row) {
        cpu::kernels(weight.numeric_class())
            .arrange_w4a8({.q = input.int8.values.row(row),
                           .depth = x.num_cols,
                           .group_size = group_size,
                           .row = values + row * stride});
    }
    input.w4a8 = {{values, x.num_rows, x.num_cols, stride}, input.int8.row_scale};
    std::vector<float> y(x.num_rows * weight.num_outputs());
    linear_f32(input, weight, make_rows(y.data(), x.num_rows, weight.num_outputs()), parallel);
    return y;
}

// The formula, one operation after the other.
std::vector<float> formula(const RandomMatrix& x, const RandomInt4& w) {
    const Int4Weight weight = w.weight();
    const size_t group = int4_group_size(w.format);
    std::vector<float> y(x.num_rows * w.num_outputs);
    std::vector<int8_t> q(x.num_cols);
    for (size_t i = 0; i < x.num_rows; ++i) {
        const float row_scale =
            quantise_row(DType::kBf16, x.rows().row(i), nullptr, x.num_cols, q.data());
        for (size_t n = 0; n < w.num_outputs; ++n) {
            float sum = 0;
            for (size_t first = 0; first < w.depth; first += group) {
                int products = 0;
                for (size_t k = first; k < std::min(first + group, w.depth); ++k) {
                    products += q[k] * (weight.value(n, k) - weight.zero_at(n, k));
                }
                sum = std::fma(weight.scale_at(n, first), static_cast<float>(products), sum);
            }
            y[i * w.num_outputs + n] = sum * row_scale;
        }
    }
    return y;
}

// Oracle: the formula. Bit by bit; depths around steps, groups and the ends of rows, and row counts
// around the tiles of every class.
TEST_P(W4a8Linear, IsTheFormula) {
    SerialParallel serial;
    for (const WeightFormat format : kInt4Formats) {
        for (const size_t depth : {1u, 7u, 8u, 31u, 32u, 33u, 63u, 64u, 65u, 100u, 515u}) {
            const RandomInt4 w(kW4a8Outputs, depth, format, 5);
            for (const size_t num_rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 13u, 40u}) {
                const RandomMatrix x(num_rows, depth, 6);
                const std::vector<float> have =
                    w4a8_sums(x, PackedLinear::pack(w.weight(), GetParam()), serial);
                const std::vector<float> want = formula(x, w);
                ASSERT_EQ(test::bits_of(std::span<const float>(have)),
                          test::bits_of(std::span<const float>(want)))
                    << name_of(format) << ", " << num_rows << " rows of " << depth;
            }
        }
    }
}

// Sums of a group at both of their ends: 64 · 127 · -8, and 64 · 127 · 7; with zero points 15
// times.
TEST_P(W4a8Linear, HoldsTheLargestSums) {
    SerialParallel serial;
    struct Case {
        WeightFormat format;
        uint8_t byte;
        int8_t zero;
        float number;
    };
    for (const Case& c : {Case{WeightFormat::kInt4Group64, 0x88, 0, -8.0f},
                          Case{WeightFormat::kInt4Group64, 0x77, 0, 7.0f},
                          Case{WeightFormat::kInt4Group64Zero, 0x88, 7, -15.0f},
                          Case{WeightFormat::kInt4Group64Zero, 0x77, -8, 15.0f}}) {
        RandomInt4 w(kW4a8Outputs, 192, c.format, 1);
        for (uint8_t& values : w.values) values = c.byte;
        for (int8_t& zero : w.zero) zero = c.zero;
        RandomMatrix x(5, 192, 2);
        for (size_t i = 0; i < x.values.size(); ++i) {
            x.values[i] = from_float(i / 192 % 2 == 0 ? 127.0f : -127.0f);
        }
        const std::vector<float> have =
            w4a8_sums(x, PackedLinear::pack(w.weight(), GetParam()), serial);
        ASSERT_EQ(have, formula(x, w));
        const float sum = 64 * 127 * c.number;
        float want = 0;
        for (size_t g = 0; g < 3; ++g) want = std::fma(w.weight().scale_at(0, 64 * g), sum, want);
        EXPECT_EQ(have[0], want);
    }
}

// A row that holds what is no number gives NaN, and leaves its neighbours alone.
TEST_P(W4a8Linear, ARowWithoutANumberIsNan) {
    SerialParallel serial;
    const RandomInt4 w(kW4a8Outputs, 96, WeightFormat::kInt4Group32, 3);
    RandomMatrix x(3, 96, 4);
    const std::vector<float> before = formula(x, w);
    x.values[96 + 17] = from_float(std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> y = w4a8_sums(x, PackedLinear::pack(w.weight(), GetParam()), serial);
    for (size_t i = 0; i < y.size(); ++i) {
        if (i / kW4a8Outputs == 1) {
            EXPECT_TRUE(std::isnan(y[i])) << i;
        } else {
            EXPECT_EQ(y[i], before[i]) << i;
        }
    }
}

TEST_P(W4a8Linear, IsRowInvariant) {
    const RandomMatrix x(32, 301, 7);
    for (const WeightFormat format : kInt4Formats) {
        const RandomInt4 w(203, 301, format, 9);
        const PackedLinear weight = PackedLinear::pack(w.weight(), GetParam());
        test::expect_row_invariant(32, [&](std::span<const size_t> rows, Parallel& parallel) {
            const std::vector<float> y = w4a8_sums(x.pick(rows), weight, parallel);
            return test::bits_of(std::span<const float>(y));
        });
    }
}

// Goal: who arranges a row need not be of the class that multiplies it. Oracle: the portable loop.
TEST_P(W4a8Linear, EveryClassArrangesRowsAlike) {
    for (const size_t group : {32u, 64u}) {
        for (const size_t depth : {1u, 8u, 31u, 32u, 33u, 64u, 95u, 96u, 129u, 320u}) {
            const test::RandomInt8 q(1, depth, 11);
            std::vector<int8_t> rows[2];
            for (std::vector<int8_t>& row : rows) row.assign(w4a8_row_bytes(depth, group), 99);
            const auto arrange = [&](const cpu::Kernels& kernels, std::vector<int8_t>& row) {
                kernels.arrange_w4a8(
                    {.q = q.values.data(), .depth = depth, .group_size = group, .row = row.data()});
            };
            arrange(cpu::portable_kernels(), rows[0]);
            arrange(cpu::kernels(GetParam()), rows[1]);
            EXPECT_EQ(rows[0], rows[1]) << depth << " in groups of " << group;
            EXPECT_EQ(rows[0][0], q.values[0]);
            EXPECT_EQ(rows[0][1], depth > 4 ? q.values[4] : 0);
        }
    }
}

}  // namespace
}  // namespace afd::ops
