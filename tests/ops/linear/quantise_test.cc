// SPDX-License-Identifier: Apache-2.0

#include "ops/linear/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "ops/cpu/kernels.h"
#include "ops/reference/quantise.h"
#include "ops/tensor/fp16.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/random_values.h"
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
    test::RandomValues random(seed, deviation);
    std::vector<float> values(count);
    for (float& value : values) value = random.next();
    return values;
}

void quantise_with(const cpu::Kernels& kernels,
                   DType dtype,
                   const void* x,
                   const float* smooth,
                   size_t num_rows,
                   size_t count,
                   int8_t* q,
                   float* scale,
                   bool is_streamed) {
    switch (dtype) {
        case DType::kBf16:
            return kernels.quantise_bf16(
                static_cast<const Bf16*>(x), smooth, num_rows, count, q, scale, is_streamed);
        case DType::kFp16:
            return kernels.quantise_fp16(
                static_cast<const Fp16*>(x), smooth, num_rows, count, q, scale, is_streamed);
        default:
            return kernels.quantise_fp32(
                static_cast<const float*>(x), smooth, num_rows, count, q, scale, is_streamed);
    }
}

// Rows of all magnitudes from subnormal to near overflow, one of zeros, and two with a single
// infinity or NaN among ordinary values.
constexpr float kDeviations[] = {
    1e-44f, 1.0f, 1e-38f, 0.0f, 1e-6f, INFINITY, 3e4f, NAN, 1e37f, 2.0f};
constexpr size_t kRows = std::size(kDeviations);

std::vector<float> rows_of_all_magnitudes(size_t count) {
    std::vector<float> values;
    for (size_t row = 0; row < kRows; ++row) {
        std::vector<float> one =
            random_values(count, static_cast<uint32_t>(17 * count + row), 1.0f);
        const bool is_finite = std::isfinite(kDeviations[row]);
        if (!is_finite && count > 0) one[count / 2] = kDeviations[row];
        for (float& value : one) value *= is_finite ? kDeviations[row] : 1.0f;
        values.insert(values.end(), one.begin(), one.end());
    }
    return values;
}

// Goal: a row's bits do not depend on the processor, the rows beside it, nor on how it is stored.
// Method: every numeric class, lengths 0, 1, primes and around vector and buffer widths, rows of
// all magnitudes, with and without smooth scale, through the caches and past them.
// Oracle: bit equality with the reference.
TEST(Quantise, EveryClassGivesTheBitsOfTheReference) {
    for (const DType dtype : kFloatTypes) {
        for (const size_t count : {0, 1, 2, 15, 16, 17, 31, 64, 127, 128, 333, 1024, 8256}) {
            const Row x(dtype, rows_of_all_magnitudes(count));
            const std::vector<float> smooth = random_values(count, 3, 0.7f);
            for (const float* scales : {static_cast<const float*>(nullptr), smooth.data()}) {
                std::vector<int8_t> want(kRows * count);
                std::vector<float> want_scale(kRows);
                for (size_t row = 0; row < kRows; ++row) {
                    const std::byte* values = x.bytes.data() + row * count * size_of(dtype);
                    want_scale[row] = reference::quantise_row(
                        dtype, values, scales, count, want.data() + row * count);
                }
                for (const NumericClass numeric_class : supported_numeric_classes()) {
                    for (const bool is_streamed : {false, true}) {
                        const Workspace q(kRows * count);
                        std::vector<float> scale(kRows);
                        quantise_with(cpu::kernels(numeric_class),
                                      dtype,
                                      x.bytes.data(),
                                      scales,
                                      kRows,
                                      count,
                                      reinterpret_cast<int8_t*>(q.bytes().data()),
                                      scale.data(),
                                      is_streamed);
                        EXPECT_EQ(0, std::memcmp(scale.data(), want_scale.data(), kRows * 4))
                            << name_of(dtype) << " " << count << " " << is_streamed;
                        EXPECT_TRUE(std::ranges::equal(q.bytes().first(want.size()),
                                                       std::as_bytes(std::span(want))))
                            << name_of(dtype) << " " << count << " " << is_streamed;
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
            threads::ThreadPool parallel(num_threads);
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
