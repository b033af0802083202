// SPDX-License-Identifier: Apache-2.0

#include "ops/quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/fp16.h"
#include "ops/reference/quantise.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

constexpr DType kFloatTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32};

// Goal: both conversions are exact. Method: all 65,536 halves, and for every adjacent pair of
// finite ones the midpoint and its neighbours. Oracle: the definition, by ldexp; the even one wins.
TEST(Fp16, EveryHalfWidensToItsValueAndRoundsBack) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
        const Fp16 half{static_cast<uint16_t>(bits)};
        const int exponent = static_cast<int>(bits >> 10 & 31);
        const double mantissa = bits & 1023;
        const float value = to_float(half);
        if (exponent == 31 && mantissa != 0) {
            ASSERT_TRUE(std::isnan(value)) << bits;
            ASSERT_EQ(fp16_from_float(value).bits, bits | 0x200) << bits;
            continue;
        }
        double want = exponent == 31  ? std::numeric_limits<double>::infinity()
                      : exponent == 0 ? std::ldexp(mantissa, -24)
                                      : std::ldexp(1024 + mantissa, exponent - 25);
        want = std::copysign(want, bits >> 15 != 0 ? -1.0 : 1.0);
        ASSERT_EQ(value, want) << bits;
        ASSERT_EQ(std::signbit(value), bits >> 15 != 0) << bits;
        ASSERT_EQ(fp16_from_float(value), half) << bits;
    }
}

TEST(Fp16, MidpointsRoundToTheEvenNeighbourAndOverflowToInfinity) {
    for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
        const float low = to_float(Fp16{static_cast<uint16_t>(bits)});
        const float high = to_float(Fp16{static_cast<uint16_t>(bits + 1)});
        const float middle = low + (high - low) / 2;
        ASSERT_EQ(fp16_from_float(middle).bits, bits + (bits & 1)) << bits;
        ASSERT_EQ(fp16_from_float(-middle).bits, 0x8000 | (bits + (bits & 1))) << bits;
        ASSERT_EQ(fp16_from_float(std::nextafter(middle, 0.0f)).bits, bits) << bits;
        ASSERT_EQ(fp16_from_float(std::nextafter(middle, 1e9f)).bits, bits + 1) << bits;
    }
    EXPECT_EQ(fp16_from_float(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
    EXPECT_EQ(fp16_from_float(65520.0f).bits, 0x7c00);
    EXPECT_EQ(fp16_from_float(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
}

// A row of `count` values of a dtype, as bytes.
struct Row {
    std::vector<std::byte> bytes;
    Row(DType dtype, const std::vector<float>& values) : bytes(values.size() * 4 + 4) {
        for (size_t i = 0; i < values.size(); ++i) {
            reference::set_element(dtype, bytes.data(), i, values[i]);
        }
    }
};

std::vector<float> random_values(size_t count, uint32_t seed, float deviation) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> values(count);
    for (float& value : values) value = normal(engine);
    return values;
}

// Every numeric class against the reference: lengths 0, 1, primes and around vector widths,
// magnitudes from subnormal to near overflow, with and without smooth scale. Oracle: bit equality.
TEST(Quantise, EveryClassGivesTheBitsOfTheReference) {
    for (const DType dtype : kFloatTypes) {
        for (const size_t count : {0, 1, 2, 15, 16, 17, 31, 64, 127, 333, 1024}) {
            for (const float deviation : {1e-44f, 1e-38f, 1e-6f, 1.0f, 3e4f, 1e37f}) {
                const Row row(dtype, random_values(count, static_cast<uint32_t>(count), deviation));
                const std::vector<float> smooth = random_values(count, 3, 0.7f);
                for (const float* scales : {static_cast<const float*>(nullptr), smooth.data()}) {
                    std::vector<int8_t> want(count, 99);
                    const float want_scale = reference::quantise_row(
                        dtype, row.bytes.data(), scales, count, want.data());
                    for (const NumericClass numeric_class : supported_numeric_classes()) {
                        const cpu::Kernels& k = cpu::kernels(numeric_class);
                        std::vector<int8_t> q(count, 77);
                        const void* x = row.bytes.data();
                        const float scale =
                            dtype == DType::kBf16
                                ? k.quantise_bf16(
                                      static_cast<const Bf16*>(x), scales, count, q.data())
                            : dtype == DType::kFp16
                                ? k.quantise_fp16(
                                      static_cast<const Fp16*>(x), scales, count, q.data())
                                : k.quantise_fp32(
                                      static_cast<const float*>(x), scales, count, q.data());
                        ASSERT_EQ(std::bit_cast<uint32_t>(scale),
                                  std::bit_cast<uint32_t>(want_scale))
                            << name_of(dtype) << " " << count << " " << deviation;
                        ASSERT_EQ(q, want) << name_of(dtype) << " " << count << " " << deviation;
                    }
                }
            }
        }
    }
}

TEST(Quantise, RoundsHalvesToEvenAndUsesTheScaledValue) {
    // The largest magnitude 127 makes the scale exactly 1.
    const std::vector<float> values{127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, -127};
    const Row row(DType::kFp32, values);
    int8_t q[8];
    EXPECT_EQ(quantise_row(DType::kFp32, row.bytes.data(), nullptr, 8, q), 1.0f);
    EXPECT_EQ(std::vector<int>(q, q + 8), (std::vector<int>{127, 0, 2, 2, 0, -2, 126, -127}));
    const std::vector<float> smooth(8, 2.0f);
    EXPECT_EQ(quantise_row(DType::kFp32, row.bytes.data(), smooth.data(), 8, q), 2.0f);
    EXPECT_EQ(std::vector<int>(q, q + 8), (std::vector<int>{127, 0, 2, 2, 0, -2, 126, -127}));
}

TEST(Quantise, ARowOfZerosHasScaleZeroAndOneWithNanOrInfinityScaleNan) {
    for (const DType dtype : kFloatTypes) {
        int8_t q[5] = {9, 9, 9, 9, 9};
        const Row zeros(dtype, {0.0f, -0.0f, 0, 0, 0});
        EXPECT_EQ(quantise_row(dtype, zeros.bytes.data(), nullptr, 5, q), 0.0f);
        EXPECT_EQ(std::vector<int>(q, q + 5), std::vector<int>(5, 0));
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()}) {
            std::fill_n(q, 5, int8_t{9});
            const Row row(dtype, {1, 2, 3, bad, 4});
            EXPECT_TRUE(std::isnan(quantise_row(dtype, row.bytes.data(), nullptr, 5, q)));
            EXPECT_EQ(std::vector<int>(q, q + 5), std::vector<int>(5, 0));
        }
    }
}

TEST(Quantise, ASmoothScaleThatOverflowsOrUnderflowsCountsAsInfinityOrZero) {
    int8_t q[2] = {9, 9};
    const Row row(DType::kFp32, {1e30f, 1.0f});
    const float large[] = {1e30f, 1.0f};
    EXPECT_TRUE(std::isnan(quantise_row(DType::kFp32, row.bytes.data(), large, 2, q)));
    EXPECT_EQ(q[1], 0);
    const Row tiny(DType::kFp32, {1e-44f, -1e-44f});
    q[0] = 9;
    EXPECT_EQ(quantise_row(DType::kFp32, tiny.bytes.data(), nullptr, 2, q), 0.0f);
    EXPECT_EQ(q[0], 0);
}

TEST(Quantise, StaticClipsToTheWholeRangeOfInt8) {
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> values{
        0, 1, 0.25f, 0.75f, -64, 64, 63.5f, infinity, -infinity, std::nanf(""), -65};
    const Row row(DType::kFp32, values);
    std::vector<int8_t> q(values.size());
    std::vector<int8_t> want(values.size());
    quantise_row_static(DType::kFp32, row.bytes.data(), 2.0f, 0.0f, values.size(), q.data());
    EXPECT_EQ(q, (std::vector<int8_t>{0, 2, 0, 2, -128, 127, 127, 127, -128, 0, -128}));
    for (const DType dtype : kFloatTypes) {
        const Row random(dtype, random_values(1000, 5, 30.0f));
        q.resize(1000);
        want.resize(1000);
        quantise_row_static(dtype, random.bytes.data(), 2.5f, -3.25f, 1000, q.data());
        reference::quantise_row_static(dtype, random.bytes.data(), 2.5f, -3.25f, 1000, want.data());
        EXPECT_EQ(q, want);
    }
}

TEST(Quantise, RowsDoNotDependOnEachOtherNorOnThreads) {
    const test::RandomMatrix x(301, 97, 1);
    const std::vector<float> smooth = random_values(97, 2, 1.0f);
    std::vector<int8_t> want(301 * 97);
    std::vector<float> want_scale(301);
    for (size_t row = 0; row < 301; ++row) {
        want_scale[row] = reference::quantise_row(
            DType::kBf16, x.rows().row(row), smooth.data(), 97, &want[row * 97]);
    }
    for (const size_t num_rows : {0, 1, 301}) {
        for (const unsigned num_threads : {1u, 3u}) {
            std::vector<int8_t> q(num_rows * 97);
            std::vector<float> scale(num_rows);
            test::ThreadsParallel parallel(num_threads);
            quantise_rows(
                {.x = make_tensor<const void>(x.values.data(), DType::kBf16, {num_rows, 97}),
                 .smooth = smooth.data(),
                 .q = q.data(),
                 .scale = scale.data()},
                parallel);
            EXPECT_TRUE(std::equal(q.begin(), q.end(), want.begin()));
            EXPECT_TRUE(std::equal(scale.begin(), scale.end(), want_scale.begin()));
        }
    }
}

}  // namespace
}  // namespace afd::ops
