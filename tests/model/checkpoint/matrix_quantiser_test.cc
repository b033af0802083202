// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/matrix_quantiser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace afd::model {
namespace {

using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Lt;

std::vector<ops::Bf16> random_matrix(size_t count) {
    std::mt19937 generator(3);
    std::normal_distribution<float> normal(0, 0.05f);
    std::vector<ops::Bf16> values(count);
    for (ops::Bf16& value : values) value = ops::from_float(normal(generator));
    return values;
}

// The rules of docs/specification.md, section 9, one element at a time.
TEST(MatrixQuantiser, Int8IsTheNearestStepOfEveryRow) {
    constexpr size_t kRows = 5;
    constexpr size_t kDepth = 37;
    std::vector<ops::Bf16> weight = random_matrix(kRows * kDepth);
    std::fill_n(weight.begin() + 2 * kDepth, kDepth, ops::Bf16{});
    const auto matrix = quantise_matrix(
        ops::make_rows<const ops::Bf16>(weight.data(), kRows, kDepth), ops::WeightFormat::kInt8);
    ASSERT_TRUE(matrix.ok());
    for (size_t n = 0; n < kRows; ++n) {
        float largest = 0;
        for (size_t k = 0; k < kDepth; ++k) {
            largest = std::max(largest, std::abs(ops::to_float(weight[n * kDepth + k])));
        }
        EXPECT_EQ(matrix.value().int8_scale[n], largest / 127);
        for (size_t k = 0; k < kDepth; ++k) {
            const float w = ops::to_float(weight[n * kDepth + k]);
            const float q = largest == 0 ? 0 : std::nearbyint(w / (largest / 127));
            EXPECT_EQ(matrix.value().int8[n * kDepth + k], q) << n << ", " << k;
        }
    }
}

TEST(MatrixQuantiser, Int4IsTheNearestStepOfEveryGroup) {
    constexpr size_t kRows = 4;
    using enum ops::WeightFormat;
    for (const auto format : {kInt4Group32, kInt4Group64, kInt4Group32Fp16, kInt4Group64Fp16}) {
        for (const size_t depth : {64, 100, 33, 2}) {
            std::vector<ops::Bf16> weight = random_matrix(kRows * depth);
            std::fill_n(weight.begin(), std::min<size_t>(depth, 32), ops::Bf16{});
            const auto matrix = quantise_matrix(
                ops::make_rows<const ops::Bf16>(weight.data(), kRows, depth), format);
            ASSERT_TRUE(matrix.ok());
            const ops::Int4Weight packed = matrix.value().int4_weight();
            EXPECT_TRUE(ops::values_in_range(packed));
            const std::vector<float> values = matrix.value().values();
            for (size_t i = 0; i < weight.size(); ++i) {
                const size_t n = i / depth;
                const size_t size = ops::int4_group_size(format);
                const size_t first = i % depth / size * size;
                const size_t last = std::min(depth, first + size);
                float largest = 0;
                for (size_t k = first; k < last; ++k) {
                    largest = std::max(largest, std::abs(ops::to_float(weight[n * depth + k])));
                }
                // Five significant bits, of fp16 eleven: a whole number of 1/32 or 1/2048 of the
                // next power of two.
                const int bits = ops::has_fp16_scales(format) ? 11 : 5;
                int exponent = 0;
                const float mantissa = std::frexp(largest / 7, &exponent);
                const float s = std::ldexp(std::ceil(std::ldexp(mantissa, bits)), exponent - bits);
                const float w = ops::to_float(weight[i]);
                const float q = s == 0 ? 0 : std::nearbyint(w / s);
                EXPECT_EQ(packed.scale_at(n, i % depth), s);
                EXPECT_EQ(static_cast<float>(packed.value(n, i % depth)), q);
                EXPECT_EQ(values[i], ops::to_float(ops::from_float(q * s)));
                // And half a step of bf16, where the product is not one.
                EXPECT_THAT(std::abs(values[i] - w), Le(0.5f * s + 0x1p-9f * std::abs(q * s)));
            }
        }
    }
}

// Below 2^-14 fp16 has fewer bits: a scale that were rounded down there would need q beyond 7.
TEST(MatrixQuantiser, Fp16ScalesAreRoundedUpToTheLastBit) {
    for (const float largest : {0x1p-26f, 0x1.6p-22f, 0x1.fep-21f, 0x1.3p-14f, 400000.0f}) {
        const std::vector<ops::Bf16> weight = {
            ops::from_float(largest), ops::from_float(-largest), ops::from_float(largest / 2)};
        const auto matrix = quantise_matrix(ops::make_rows<const ops::Bf16>(weight.data(), 1, 3),
                                            ops::WeightFormat::kInt4Group32Fp16);
        ASSERT_TRUE(matrix.ok()) << matrix.error().message;
        const ops::Int4Weight packed = matrix.value().int4_weight();
        const float scale = packed.scale_at(0, 0);
        EXPECT_THAT(scale, Ge(ops::to_float(weight[0]) / 7));
        const ops::Fp16 below{static_cast<uint16_t>(*packed.scale.row(0) - 1)};
        EXPECT_THAT(ops::to_float(below), Lt(ops::to_float(weight[0]) / 7));
        EXPECT_EQ(packed.value(0, 0), std::nearbyint(ops::to_float(weight[0]) / scale));
        EXPECT_EQ(packed.value(0, 1), -packed.value(0, 0));
        EXPECT_THAT(packed.value(0, 0), Le(7));
    }
}

TEST(MatrixQuantiser, RefusesAScaleBeyondFp16) {
    const std::vector<ops::Bf16> weight(4, ops::from_float(500000.0f));
    const auto rows = ops::make_rows<const ops::Bf16>(weight.data(), 2, 2);
    EXPECT_THAT(quantise_matrix(rows, ops::WeightFormat::kInt4Group32Fp16).error().message,
                HasSubstr("in a group, whose scale is beyond fp16 (65504); use bf16 scales"));
    EXPECT_TRUE(quantise_matrix(rows, ops::WeightFormat::kInt4Group32).ok());
}

TEST(MatrixQuantiser, RefusesWhatHasNoScale) {
    std::vector<ops::Bf16> weight = random_matrix(6);
    weight[4] = ops::from_float(INFINITY);
    const auto matrix = quantise_matrix(ops::make_rows<const ops::Bf16>(weight.data(), 2, 3),
                                        ops::WeightFormat::kInt8);
    EXPECT_THAT(matrix.error().message, HasSubstr("element [1, 1] is inf"));
}

}  // namespace
}  // namespace afd::model
