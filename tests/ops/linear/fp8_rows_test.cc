// SPDX-License-Identifier: Apache-2.0
//
// Goal: rows go to fp8 and back by the rule of ops/linear/fp8_rows.h, in every numeric class.
// Method: rows of every bf16 pattern, lengths around a block, zeros, and values that are no
// numbers; the kernels of each class that this processor has. Oracle: the nearest of all e4m3
// values, found by search; ties to the even pattern.

#include "ops/linear/fp8_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/cpu/kernels.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using Bf16Row = std::vector<Bf16>;

// By the format: 4 bits of exponent, 3 of mantissa.
double value_of(uint8_t pattern) {
    const int exponent = (pattern >> 3) & 15;
    const int mantissa = pattern & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return (pattern & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t nearest(float quotient) {
    const double magnitude = std::fabs(static_cast<double>(quotient));
    uint8_t best = 0;
    for (uint8_t pattern = 1; pattern <= 0x7e; ++pattern) {
        const double distance = std::fabs(value_of(pattern) - magnitude);
        const double least = std::fabs(value_of(best) - magnitude);
        if (distance < least || (distance == least && pattern % 2 == 0)) best = pattern;
    }
    return static_cast<uint8_t>(best | (std::signbit(quotient) ? 0x80 : 0));
}

std::vector<std::byte> expected(const Bf16Row& x) {
    std::vector<std::byte> row(fp8_row_bytes(x.size()));
    for (size_t first = 0; first < x.size(); first += kFp8BlockValues) {
        const size_t last = std::min(first + kFp8BlockValues, x.size());
        float largest = 0;
        bool is_finite = true;
        for (size_t i = first; i < last; ++i) {
            is_finite = is_finite && std::isfinite(to_float(x[i]));
            largest = std::max(largest, std::fabs(to_float(x[i])));
        }
        const float scale = is_finite ? largest / 448.0f : std::nanf("");
        for (size_t i = first; i < last && scale > 0; ++i) {
            row[i] = static_cast<std::byte>(nearest(to_float(x[i]) / scale));
        }
        std::memcpy(&row[x.size() + first / kFp8BlockValues * 4], &scale, sizeof(scale));
    }
    return row;
}

// Every bf16 magnitude, each block over a few exponents, so that quotients take all roundings.
std::vector<Bf16Row> rows() {
    std::vector<Bf16Row> all;
    Bf16Row patterns;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        patterns.push_back(Bf16{static_cast<uint16_t>(bits)});
    }
    all.push_back(patterns);
    for (const size_t count : {size_t{1}, size_t{127}, size_t{128}, size_t{129}, size_t{300}}) {
        const test::RandomMatrix random(1, count, static_cast<uint32_t>(count));
        all.emplace_back(random.values.begin(), random.values.end());
        all.emplace_back(count);  // Zeros.
    }
    // From the largest value down to nothing within one block.
    for (uint32_t shift = 0; shift < 8; ++shift) {
        Bf16Row wide;
        for (uint32_t i = 0; i < 128; ++i) {
            wide.push_back(from_float(std::ldexp(1.0f + static_cast<float>(i) / 128.0f,
                                                 -static_cast<int>(i / 8 + shift))));
        }
        all.push_back(wide);
    }
    Bf16Row poisoned(256, from_float(1.0f));
    poisoned[3] = from_float(NAN);
    poisoned[200] = from_float(-INFINITY);
    all.push_back(poisoned);
    return all;
}

class Fp8Rows : public testing::TestWithParam<NumericClass> {};

TEST_P(Fp8Rows, AreTheNearestValuesOfTheirBlocksScale) {
    const cpu::Kernels& kernels = cpu::kernels(GetParam());
    for (const Bf16Row& x : rows()) {
        std::vector<std::byte> row(fp8_row_bytes(x.size()));
        kernels.encode_fp8(x.data(), x.size(), row.data());
        const std::vector<std::byte> want = expected(x);
        for (size_t i = 0; i < x.size(); ++i) {
            ASSERT_EQ(row[i], want[i]) << "value " << i << " of " << x.size();
        }
        for (size_t at = x.size(); at < row.size(); at += sizeof(float)) {
            float have;
            float wanted;
            std::memcpy(&have, &row[at], sizeof(have));
            std::memcpy(&wanted, &want[at], sizeof(wanted));
            ASSERT_TRUE(have == wanted || (std::isnan(have) && std::isnan(wanted))) << at;
        }
    }
}

TEST_P(Fp8Rows, ExpandToTheRoundedProductOfValueAndScale) {
    const cpu::Kernels& kernels = cpu::kernels(GetParam());
    constexpr size_t kNumRows = 2;
    std::vector<std::byte> values(kNumRows * 256);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 7 + i / 256);
    // Also on either side of those that lanes take.
    for (const float scale : {0.0f,
                              1.0f,
                              0.3f,
                              1e-30f,
                              0x1p-117f,
                              0x1.fffffep-118f,
                              0x1.fffffep101f,
                              0x1p102f,
                              0x1.fffffep118f,
                              0x1p119f,
                              3e38f,
                              NAN}) {
        for (const size_t count : {1u, 31u, 100u, 128u, 200u, 256u}) {
            std::vector<float> scales(kNumRows * 256 / sizeof(float));
            for (size_t i = 0; i < scales.size(); ++i) {
                scales[i] = i / 64 == 0 ? scale : 0.01f * static_cast<float>(i);
            }
            Bf16Row x(kNumRows * count);
            kernels.expand_fp8({.values = values.data(),
                                .scales = reinterpret_cast<const std::byte*>(scales.data()),
                                .row_bytes = 256,
                                .num_rows = kNumRows,
                                .count = count,
                                .next = values},
                               x.data());
            for (size_t i = 0; i < x.size(); ++i) {
                const size_t row = i / count;
                const size_t column = i % count;
                const auto bits = static_cast<uint8_t>(values[row * 256 + column]);
                const auto value = static_cast<float>(value_of(bits));
                const Bf16 want = from_float(value * scales[row * 64 + column / 128]);
                if (std::isnan(to_float(want))) {
                    ASSERT_TRUE(std::isnan(to_float(x[i]))) << i;
                } else {
                    ASSERT_EQ(x[i], want)
                        << row << " " << column << " of " << count << " times " << scale;
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Classes,
                         Fp8Rows,
                         testing::ValuesIn(supported_numeric_classes().begin(),
                                           supported_numeric_classes().end()),
                         [](const auto& numeric_class) {
                             std::string name(name_of(numeric_class.param));
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace afd::ops
