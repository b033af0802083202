// SPDX-License-Identifier: Apache-2.0
#pragma once

// log and power in double, for what is computed once at set-up and decides bits later: ours, since
// what libm returns in the last place differs between its versions.
//
// Only IEEE multiply, add, divide and exact operations (frexp, ldexp, nearbyint) in one written
// order; the build forbids contraction. Errors, tested in tests/ops/tensor/double_math_test.cc:
// double_log 1 ulp of what libm gives, double_power 1e-14 of the value for bases of 2 to 2^40 and
// exponents of 0 to 1.

#include <cmath>
#include <limits>

namespace afd::ops {

namespace double_math {
// ln 2 in two parts; the first has 32 bits, so its product with an exponent is exact.
inline constexpr double kLn2High = 0x1.62e42feep-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
}  // namespace double_math

// log(0) is -infinity, and that of infinity is infinity. REQUIRES: x is not negative.
inline double double_log(double x) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (x == 0.0) return -kInfinity;
    if (x == kInfinity) return x;
    int exponent = 0;
    double mantissa = std::frexp(x, &exponent);
    if (mantissa < 0x1.6a09e667f3bcdp-1) {
        mantissa *= 2.0;
        exponent -= 1;
    }
    // log m = 2 atanh(s) with s = (m - 1) / (m + 1), |s| <= 0.1716; the first omitted term is below
    // 2^-60 of the sum.
    const double f = mantissa - 1.0;
    const double s = f / (2.0 + f);
    const double z = s * s;
    double p = 0.0;
    for (int k = 23; k >= 3; k -= 2) p = (p + 2.0 / k) * z;
    const double n = exponent;
    // 2s = f - s·f loses nothing near 1, where f is exact and small.
    return n * double_math::kLn2High + (f - (s * (f - p) - n * double_math::kLn2Low));
}

// base to the power of `exponent`. REQUIRES: base is positive and finite, and so is the result.
inline double double_power(double base, double exponent) {
    const double x = exponent * double_log(base);
    const double n = std::nearbyint(x * 0x1.71547652b82fep+0);
    const double r = (x - n * double_math::kLn2High) - n * double_math::kLn2Low;
    // Taylor: |r| <= 0.3466, and the first omitted term is below 2^-60.
    double p = 1.0;
    for (int k = 14; k >= 2; --k) p = 1.0 + p * (r / k);
    return std::ldexp(1.0 + r * p, static_cast<int>(n));
}

}  // namespace afd::ops
