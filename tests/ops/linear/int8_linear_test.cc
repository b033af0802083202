// SPDX-License-Identifier: Apache-2.0

#include "ops/linear/int8_linear.h"

#include <gtest/gtest.h>

#include "tests/ops/operators/mla_v3/mla_case.h"

namespace afd::ops {
namespace {

using test::positive_tensor;
using test::random_tensor;
using test::Tensor;

// Oracle: 64-bit sums, then the two products in the stated order; every bit must agree.
TEST(Int8Linear, IsTheExactSumTimesRowAndColumnScale) {
    for (const size_t rows : {0u, 1u, 3u, 4u, 5u, 17u}) {
        for (const size_t cols : {1u, 31u, 32u, 33u, 100u}) {
            for (const size_t depth : {1u, 2u, 63u, 257u}) {
                const Tensor x = random_tensor(DType::kInt8, {rows, depth}, 1);
                const Tensor w = random_tensor(DType::kInt8, {depth, cols}, 2);
                const Tensor row_scale = positive_tensor({rows}, 3, 0.01f);
                const Tensor column_scale = positive_tensor({cols}, 4, 0.1f);
                const auto packed =
                    PackedInt8Linear::pack_transposed(make_rows(w.as<int8_t>(), depth, cols));
                Tensor wide(DType::kFp32, {rows, cols}, 0x55);
                Tensor narrow(DType::kBf16, {rows, cols}, 0x55);
                SerialParallel serial;
                const Int8Rows in{make_rows(x.as<int8_t>(), rows, depth), row_scale.as<float>()};
                const float* columns = column_scale.as<float>();
                int8_linear(in, packed, columns, make_rows(wide.as<float>(), rows, cols), serial);
                int8_linear(in, packed, columns, make_rows(narrow.as<Bf16>(), rows, cols), serial);
                for (size_t i = 0; i < rows; ++i) {
                    for (size_t n = 0; n < cols; ++n) {
                        int64_t sum = 0;
                        for (size_t k = 0; k < depth; ++k) {
                            sum += int64_t{x.as<int8_t>()[i * depth + k]} *
                                   int64_t{w.as<int8_t>()[k * cols + n]};
                        }
                        const float want =
                            static_cast<float>(sum) * row_scale.as<float>()[i] * columns[n];
                        ASSERT_EQ(wide.as<float>()[i * cols + n], want);
                        ASSERT_EQ(narrow.as<Bf16>()[i * cols + n], from_float(want));
                    }
                }
            }
        }
    }
}

// The largest sum that the depth allows: 131071 · (−128)² is just below 2^31.
TEST(Int8Linear, HoldsTheLargestSumOfTheLargestDepth) {
    const std::vector<int8_t> x(kInt8DepthMax, -128);
    const std::vector<int8_t> w(kInt8DepthMax, -128);
    const auto packed =
        PackedInt8Linear::pack_transposed(make_rows(w.data(), kInt8DepthMax, size_t{1}));
    const float one = 1.0f;
    float y = 0.0f;
    SerialParallel serial;
    int8_linear(
        {make_rows(x.data(), 1, kInt8DepthMax), &one}, packed, &one, make_rows(&y, 1, 1), serial);
    EXPECT_EQ(y, 2147467264.0f);
}

TEST(Int8Linear, IsRowInvariant) {
    const Tensor x = random_tensor(DType::kInt8, {32, 301}, 5);
    const Tensor w = random_tensor(DType::kInt8, {301, 203}, 6);
    const Tensor scale = positive_tensor({32}, 7, 0.01f);
    const Tensor columns = positive_tensor({203}, 8, 0.01f);
    const auto packed = PackedInt8Linear::pack_transposed(make_rows(w.as<int8_t>(), 301, 203));
    test::expect_row_invariant(32, [&](std::span<const size_t> rows, Parallel& parallel) {
        std::vector<int8_t> picked;
        std::vector<float> scales;
        for (const size_t row : rows) {
            const int8_t* from = x.as<int8_t>() + row * 301;
            picked.insert(picked.end(), from, from + 301);
            scales.push_back(scale.as<float>()[row]);
        }
        std::vector<float> y(rows.size() * 203);
        int8_linear(
            {make_rows(static_cast<const int8_t*>(picked.data()), rows.size(), 301), scales.data()},
            packed,
            columns.as<float>(),
            make_rows(y.data(), rows.size(), 203),
            parallel);
        return test::bits_of(std::span<const float>(y));
    });
}

}  // namespace
}  // namespace afd::ops
