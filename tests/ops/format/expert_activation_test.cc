// SPDX-License-Identifier: Apache-2.0

// What stands between the two products of an expert: every activation, with and without bias, in
// every numeric class and weight format.

#include "ops/format/expert_activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/tensor/math.h"
#include "tests/ops/fused_moe/moe_matrix.h"

namespace afd::ops {
namespace {

using test::MatrixExpert;
using test::MatrixKind;
using test::RandomMatrix;
AFD_FOR_EVERY_CLASS(ExpertActivations);

std::vector<float> every_bf16() {
    std::vector<float> values;
    for (uint32_t bits = 0; bits < 65536; ++bits) {
        values.push_back(to_float(Bf16{static_cast<uint16_t>(bits)}));
    }
    return values;
}

// Largest error over all finite bf16 values, relative to the value or the least normal float.
template <typename Ours, typename Exact>
double largest_error(const Ours& ours, const Exact& exact) {
    double largest = 0;
    for (const float x : every_bf16()) {
        if (!std::isfinite(x)) continue;
        const double want = exact(static_cast<double>(x));
        const double unit =
            std::max(std::fabs(want), static_cast<double>(std::numeric_limits<float>::min()));
        largest = std::max(largest, std::fabs(static_cast<double>(ours(x)) - want) / unit);
    }
    return largest;
}

TEST(ExpertActivation, GeluOfEveryBf16ValueIsNearTheExactOne) {
    EXPECT_LE(largest_error([](float x) { return gelu(x); },
                            [](double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }),
              std::ldexp(1.0, -20));
    EXPECT_LE(largest_error([](float x) { return gelu_tanh(x); },
                            [](double x) {
                                const double inner = 2.0 * std::sqrt(2.0 / std::acos(-1.0)) *
                                                     (x + 0.044715 * x * x * x);
                                return x / (1.0 + std::exp(-inner));
                            }),
              std::ldexp(1.0, -15));
    EXPECT_EQ(gelu(0.0f), 0.0f);
    EXPECT_EQ(gelu(100.0f), 100.0f);
    EXPECT_TRUE(std::isnan(gelu(NAN)));
    EXPECT_EQ(gelu_tanh(0.0f), 0.0f);
    EXPECT_EQ(gelu_tanh(3e38f), 3e38f);
    EXPECT_TRUE(std::isnan(gelu_tanh(NAN)));
}

// Oracle: the formula, by hand.
TEST(ExpertActivation, SwigluOaiClampsTheGateAboveAndTheUpOnBothSides) {
    const float gates[] = {10.0f, -3.0f, 2.0f, -1000.0f};
    const float ups[] = {9.0f, -9.0f, -1.0f, 0.5f};
    Bf16 h[4];
    cpu::portable_kernels().activate_rows[static_cast<size_t>(ExpertActivation::kSwigluOai)](
        gates, ups, 4, h);
    const double want[] = {8.0 * 7.0 / (1.0 + std::exp(-1.702 * 7.0)),
                           -6.0 * -3.0 / (1.0 + std::exp(1.702 * 3.0)),
                           0.0,
                           0.0};
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(static_cast<double>(to_float(h[i])), want[i], std::fabs(want[i]) / 256.0) << i;
    }
}

// Goal: vector bodies and scalar tails of every class have the same bits. Oracle: the portable
// rows, one value at a time.
TEST_P(ExpertActivations, RowsHaveThePortableBits) {
    const std::vector<float> gates = every_bf16();
    std::vector<float> ups;
    for (size_t i = 0; i < gates.size(); ++i) ups.push_back(static_cast<float>(i % 37) - 18.3f);
    for (const ExpertActivation activation : kExpertActivations) {
        const auto index = static_cast<size_t>(activation);
        const auto row = cpu::kernels(GetParam()).activate_rows[index];
        const auto portable = cpu::portable_kernels().activate_rows[index];
        std::vector<Bf16> h(gates.size());
        const size_t counts[] = {16, 32, 5, 31, 17, 1};
        for (size_t first = 0, i = 0; first < gates.size(); ++i) {
            const size_t count = std::min(counts[i % 6], gates.size() - first);
            row(&gates[first], &ups[first], count, &h[first]);
            first += count;
        }
        for (size_t i = 0; i < gates.size(); ++i) {
            Bf16 want;
            portable(&gates[i], &ups[i], 1, &want);
            if (std::isnan(to_float(want))) {
                ASSERT_TRUE(std::isnan(to_float(h[i]))) << name_of(activation) << gates[i];
            } else {
                ASSERT_EQ(h[i].bits, want.bits) << name_of(activation) << " of " << gates[i];
            }
        }
    }
}

std::vector<MatrixKind> all_kinds() {
    std::vector<MatrixKind> kinds;
    for (const ExpertQuantisation quantisation : kExpertQuantisations) {
        for (const ExpertActivation activation : kExpertActivations) {
            for (const bool has_bias : {false, true}) {
                kinds.push_back({quantisation, activation, has_bias, 75, 70});
            }
        }
    }
    return kinds;
}

std::string label(const MatrixKind& kind) {
    return std::string(name_of(kind.quantisation)) + " " + std::string(name_of(kind.activation)) +
           (kind.has_bias ? " with bias" : "");
}

RandomMatrix run(const ExpertTable& table, const RandomMatrix& x, Parallel& parallel) {
    RandomMatrix y(x.num_rows, table.hidden(), 1);
    const ExpertGroup group{0, static_cast<int64_t>(x.num_rows)};
    const Workspace workspace(grouped_ffn_workspace_bytes(table, x.num_rows, 1));
    EXPECT_TRUE(
        grouped_ffn(
            {.experts = &table, .groups = {&group, 1}, .x = x.rows(), .y = y.mutable_rows()},
            workspace.bytes(),
            parallel)
            .ok());
    return y;
}

ExpertTable table_of(const MatrixKind& kind, NumericClass numeric_class) {
    ExpertTable table(1, kind.hidden, kind.activation);
    table.set(0, MatrixExpert(kind, 5).pack(numeric_class));
    return table;
}

// Bound: as in expert_formats_test.
TEST_P(ExpertActivations, ExpertsMatchTheReference) {
    SerialParallel serial;
    for (const MatrixKind& kind : all_kinds()) {
        const MatrixExpert expert(kind, 5);
        const RandomMatrix x(13, kind.hidden, 9);
        const RandomMatrix y = run(table_of(kind, GetParam()), x, serial);
        const reference::Matrix want = reference::expert_ffn(
            reference::widen(x.rows()), expert.reference_weights(), reference::Rounding::kBf16);
        for (size_t r = 0; r < x.num_rows; ++r) {
            double largest = 0;
            for (size_t c = 0; c < kind.hidden; ++c) {
                largest = std::max(largest, std::fabs(want.at(r, c)));
            }
            for (size_t c = 0; c < kind.hidden; ++c) {
                ASSERT_NEAR(static_cast<double>(to_float(y.rows().row(r)[c])),
                            want.at(r, c),
                            4.0 / 256.0 * largest)
                    << label(kind) << ": " << r << "," << c;
            }
        }
    }
}

// Promise 1, each row alone, in batches of 1 to 512 rows in any order, on 1 and 2 threads.
TEST_P(ExpertActivations, AreRowInvariant) {
    for (const MatrixKind& kind : all_kinds()) {
        if (kind.quantisation != ExpertQuantisation::kNone || !kind.has_bias) continue;
        const ExpertTable table = table_of(kind, GetParam());
        const RandomMatrix x(11, kind.hidden, 10);
        test::expect_row_invariant(11, [&](std::span<const size_t> rows, Parallel& parallel) {
            const RandomMatrix y = run(table, x.pick(rows), parallel);
            return test::bits_of(std::span<const Bf16>(y.values));
        });
    }
}

}  // namespace
}  // namespace afd::ops
