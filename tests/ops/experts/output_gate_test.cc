// SPDX-License-Identifier: Apache-2.0

// The sigmoid gate behind an expert, in every numeric class.

#include <gtest/gtest.h>

#include <cmath>

#include "ops/experts/grouped_ffn.h"
#include "tests/ops/linear/quantised_weights.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using test::RandomInt8;
using test::RandomMatrix;
AFD_FOR_EVERY_CLASS(OutputGate);

constexpr size_t kHidden = 75;
constexpr size_t kIntermediate = 40;

enum class Weights { kBf16, kInt8, kInt8Smooth };

std::vector<float> random_gate() {
    const RandomMatrix values(1, kHidden, 31, 0.3f);
    std::vector<float> gate;
    for (const Bf16 value : values.values) gate.push_back(to_float(value));
    return gate;
}

// Expert 0 never has a gate, expert 1 does if `is_gated`.
ExpertTable table_of(Weights weights, bool is_gated, NumericClass numeric_class) {
    ExpertTable table(2, kHidden);
    for (uint32_t key = 0; key < 2; ++key) {
        if (weights == Weights::kBf16) {
            const RandomMatrix gate(kIntermediate, kHidden, 3 * key + 1, 0.2f);
            const RandomMatrix up(kIntermediate, kHidden, 3 * key + 2, 0.2f);
            const RandomMatrix down(kHidden, kIntermediate, 3 * key + 3, 0.2f);
            table.set(key, pack_expert(gate.rows(), up.rows(), down.rows(), numeric_class));
            continue;
        }
        const RandomInt8 gate(kIntermediate, kHidden, 3 * key + 1);
        const RandomInt8 up(kIntermediate, kHidden, 3 * key + 2);
        const RandomInt8 down(kHidden, kIntermediate, 3 * key + 3);
        table.set(key, pack_expert(gate.weight(), up.weight(), down.weight(), numeric_class));
        if (weights != Weights::kInt8Smooth) continue;
        std::vector<float> smooth(kHidden);
        for (size_t i = 0; i < kHidden; ++i) smooth[i] = 0.5f + static_cast<float>(i % 7) / 7.0f;
        table.set_smooth(key, smooth);
    }
    if (is_gated) table.set_output_gate(1, random_gate());
    return table;
}

RandomMatrix run_rows(const ExpertTable& table,
                      const RandomMatrix& x,
                      const std::vector<ExpertGroup>& groups,
                      const int32_t* row_index,
                      Parallel& parallel) {
    RandomMatrix y(x.num_rows, kHidden, 1);
    const Workspace workspace(grouped_ffn_workspace_bytes(table, x.num_rows, groups.size()));
    const Result<> result = grouped_ffn({.experts = &table,
                                         .groups = groups,
                                         .x = x.rows(),
                                         .y = y.mutable_rows(),
                                         .row_index = row_index},
                                        workspace.bytes(),
                                        parallel);
    EXPECT_TRUE(result.ok());
    return y;
}

// Oracle: the rows of the same experts without a gate, times the sigmoid in double. Bounds: one
// rounding to bf16; with int8 weights also that the sum is of the quantised row, whose elements err
// by half a step of 1/127 of the largest, which is below 4 (times 2 where a smooth scale is 1/2):
// sigmoid moves by at most a quarter of Σ|gate| · step / 2, of random signs.
TEST_P(OutputGate, MultipliesTheRowByTheSigmoid) {
    const std::vector<float> gate = random_gate();
    const RandomMatrix x(20, kHidden, 9);
    const std::vector<ExpertGroup> groups{{0, 8}, {1, 12}};
    SerialParallel serial;
    for (const Weights weights : {Weights::kBf16, Weights::kInt8, Weights::kInt8Smooth}) {
        const double bound = weights == Weights::kBf16 ? 1.0 / 256.0 : 0.06;
        const auto plain =
            run_rows(table_of(weights, false, GetParam()), x, groups, nullptr, serial);
        const auto gated =
            run_rows(table_of(weights, true, GetParam()), x, groups, nullptr, serial);
        for (size_t row = 0; row < x.num_rows; ++row) {
            double sum = 0;
            for (size_t i = 0; i < kHidden; ++i) {
                sum += static_cast<double>(to_float(x.rows().row(row)[i]) * gate[i]);
            }
            const double factor = row < 8 ? 1.0 : 1.0 / (1.0 + std::exp(-sum));
            for (size_t i = 0; i < kHidden; ++i) {
                const double want =
                    static_cast<double>(to_float(plain.rows().row(row)[i])) * factor;
                const double have = static_cast<double>(to_float(gated.rows().row(row)[i]));
                const double allowed = row < 8 ? 0.0 : bound * std::fabs(want / factor);
                ASSERT_NEAR(have, want, allowed) << row << " " << i;
            }
        }
    }
}

TEST_P(OutputGate, IsRowInvariant) {
    const RandomMatrix x(24, kHidden, 10);
    for (const Weights weights : {Weights::kBf16, Weights::kInt8}) {
        const ExpertTable table = table_of(weights, true, GetParam());
        test::expect_row_invariant(24, [&](std::span<const size_t> rows, Parallel& parallel) {
            std::vector<size_t> sorted;
            std::vector<int32_t> places;
            std::vector<ExpertGroup> groups{{0, 0}, {1, 0}};
            for (size_t key = 0; key < 2; ++key) {
                for (size_t i = 0; i < rows.size(); ++i) {
                    if (rows[i] % 2 != key) continue;
                    sorted.push_back(rows[i]);
                    places.push_back(static_cast<int32_t>(i));
                    ++groups[key].count;
                }
            }
            const auto y = run_rows(table, x.pick(sorted), groups, places.data(), parallel);
            return test::bits_of(std::span<const Bf16>(y.values));
        });
    }
}

}  // namespace
}  // namespace afd::ops
