// SPDX-License-Identifier: Apache-2.0
#pragma once

// Inputs and oracles shared by the operator tests: seeded random rows, and the row-invariance check
// of promise 1.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ops/format/numeric_class.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "threads/thread_pool.h"

namespace afd::ops::test {

// A bf16 matrix of its own memory; values roughly normal with the given deviation.
struct RandomMatrix {
    std::vector<Bf16> values;
    size_t num_rows = 0;
    size_t num_cols = 0;

    RandomMatrix() = default;
    RandomMatrix(size_t rows, size_t cols, uint32_t seed, float deviation = 1.0f);

    Rows<const Bf16> rows() const { return make_rows(values.data(), num_rows, num_cols); }
    Rows<Bf16> mutable_rows() { return make_rows(values.data(), num_rows, num_cols); }

    // The rows named by `picks`, in that order.
    RandomMatrix pick(std::span<const size_t> picks) const {
        RandomMatrix picked;
        picked.num_rows = picks.size();
        picked.num_cols = num_cols;
        for (const size_t row : picks) {
            const auto first = values.begin() + static_cast<ptrdiff_t>(row * num_cols);
            picked.values.insert(
                picked.values.end(), first, first + static_cast<ptrdiff_t>(num_cols));
        }
        return picked;
    }
};

template <typename T>
std::vector<uint32_t> bits_of(std::span<const T> values) {
    std::vector<uint32_t> bits;
    for (const T& value : values) {
        if constexpr (std::is_same_v<T, Bf16>) {
            bits.push_back(value.bits);
        } else {
            bits.push_back(std::bit_cast<uint32_t>(value));
        }
    }
    return bits;
}

// Promise 1 for one operator. `compute(rows, parallel)` runs it on the rows named, in that order,
// and returns the bits of their results, the same number for each row. Oracle: every row alone.
template <typename Compute>
void expect_row_invariant(size_t num_rows, const Compute& compute) {
    SerialParallel serial;
    std::vector<std::vector<uint32_t>> alone;
    for (size_t row = 0; row < num_rows; ++row) {
        const size_t rows[1] = {row};
        alone.push_back(compute(std::span<const size_t>(rows), serial));
    }
    std::mt19937 engine(7);
    for (const size_t batch : {1, 2, 3, 5, 8, 13, 64, 256, 512}) {
        std::vector<size_t> rows(batch);
        for (size_t i = 0; i < batch; ++i) rows[i] = i % num_rows;
        std::shuffle(rows.begin(), rows.end(), engine);
        for (const unsigned num_threads : {1u, 2u}) {
            threads::ThreadPool pool(num_threads);
            const std::vector<uint32_t> together = compute(std::span<const size_t>(rows), pool);
            const size_t width = alone[0].size();
            ASSERT_EQ(together.size(), batch * width);
            for (size_t i = 0; i < batch; ++i) {
                const std::vector<uint32_t> row(
                    together.begin() + static_cast<ptrdiff_t>(i * width),
                    together.begin() + static_cast<ptrdiff_t>((i + 1) * width));
                ASSERT_EQ(row, alone[rows[i]]) << "row " << rows[i] << " at place " << i << " of "
                                               << batch << ", " << num_threads << " threads";
            }
        }
    }
}

// Tests that run once for every numeric class of this processor.
class EveryClass : public testing::TestWithParam<NumericClass> {};

inline std::string class_label(const testing::TestParamInfo<NumericClass>& info) {
    std::string name(name_of(info.param));
    std::erase(name, '-');
    return name;
}

#define AFD_FOR_EVERY_CLASS(suite)                                                    \
    using suite = ::afd::ops::test::EveryClass;                                       \
    INSTANTIATE_TEST_SUITE_P(Classes,                                                 \
                             suite,                                                   \
                             testing::ValuesIn(std::vector<::afd::ops::NumericClass>( \
                                 ::afd::ops::supported_numeric_classes().begin(),     \
                                 ::afd::ops::supported_numeric_classes().end())),     \
                             ::afd::ops::test::class_label)

}  // namespace afd::ops::test
