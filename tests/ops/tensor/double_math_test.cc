// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor/double_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace afd::ops {
namespace {

// Goal: the same bits on every machine. Oracle: those of a machine with IEEE doubles and no fused
// operations, computed in Python from the formulas.
TEST(DoubleMath, HasTheBitsOfItsFormulas) {
    EXPECT_EQ(double_log(10000.0), 0x1.26bb1bbb55516p+3);
    EXPECT_EQ(double_log(1e6), 0x1.ba18a998fffa0p+3);
    EXPECT_EQ(double_log(40.0), 0x1.d82d33b32720dp+1);
    EXPECT_EQ(double_log(0.3), -0x1.34378fcbda721p+0);
    EXPECT_EQ(double_log(1.0000001), 0x1.ad7f2847b6492p-24);
    EXPECT_EQ(double_log(1.0), 0.0);
    EXPECT_EQ(double_power(10000.0, 0.0), 1.0);
    // Not 100, in the last place; a fp32 frequency of it is the same.
    EXPECT_EQ(double_power(10000.0, 0.5), 0x1.9000000000003p+6);
    EXPECT_EQ(double_power(150000.0, 0.25), 0x1.3ae0db6018215p+4);
    EXPECT_EQ(double_power(50000.0, 0.96875), 0x1.168f1bc6142ebp+15);
}

TEST(DoubleMath, LogIsWithinOneUlp) {
    std::mt19937_64 engine(1);
    for (int i = 0; i < 20000; ++i) {
        // Any positive finite double.
        const double x = std::bit_cast<double>(engine() % 0x7ff0000000000000u);
        if (x == 0.0) continue;
        const double want = std::log(x);
        const double ulp = std::nextafter(std::fabs(want), INFINITY) - std::fabs(want);
        ASSERT_LE(std::fabs(double_log(x) - want), ulp) << x;
    }
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(double_log(0.0), -kInfinity);
    EXPECT_EQ(double_log(kInfinity), kInfinity);
}

TEST(DoubleMath, PowerIsWithinItsBound) {
    std::mt19937_64 engine(2);
    std::uniform_real_distribution<double> exponents(0.0, 1.0);
    for (int i = 0; i < 20000; ++i) {
        const double base = std::exp2(1.0 + 39.0 * exponents(engine));
        const double exponent = exponents(engine);
        const double want = std::pow(base, exponent);
        ASSERT_LE(std::fabs(double_power(base, exponent) - want), 1e-14 * want)
            << base << " to the power of " << exponent;
    }
}

}  // namespace
}  // namespace afd::ops
