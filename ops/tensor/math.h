// SPDX-License-Identifier: Apache-2.0
#pragma once

// exp, log, sigmoid, silu, softplus and two gelu in fp32: ours, so that a result has the same bits
// in scalar and vector code, with every compiler, processor and numeric class.
//
// Only IEEE multiply, add, divide and bit operations in one written order, no branches (the loops
// around them vectorise), no fused operations (the build forbids contraction). NaN gives NaN.
// Errors against the exact value, tested over the whole range (tests/ops/tensor/math_test.cc):
// exp, log 2 ulp, sigmoid, silu and softplus 4 ulp, 1 ulp meaning the spacing of floats there; gelu
// and gelu_tanh of bf16 values 2^-20 and 2^-15 of the value, or of the least normal float. Always
// inlined, for the reason given in ops/tensor/bf16.h.

#include <bit>
#include <cstdint>

namespace afd::ops {

// 1.5·2^23. The sum with an |x| of at most 2^22 has room for no fraction: x is rounded to an
// integer, half to even, which stands in the low bits of the sum, and remains when this is
// subtracted again.
inline constexpr float kIntegerRounder = 12582912.0f;
inline constexpr int32_t kIntegerRounderBits = std::bit_cast<int32_t>(kIntegerRounder);

// Overflows to infinity above 88.72, is 0 below -103.98.
[[gnu::always_inline]] inline float exp(float x) {
    float clamped = x < -104.0f ? -104.0f : x;
    clamped = clamped > 89.0f ? 89.0f : clamped;
    const float shifted = clamped * 1.44269504088896341f + kIntegerRounder;
    const float n = shifted - kIntegerRounder;
    // ln 2 in two parts; 355/512 has 9 bits, so its product with n is exact.
    float r = clamped - n * 0.693359375f;
    r = r - n * -2.12194440054690583e-4f;
    // Taylor: |r| <= 0.3466, and the first omitted term is below 0.1 ulp.
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = 1.0f + (r + r * r * p);
    // 2^n as two factors: n reaches from -150 to 128, beyond the exponents of normal floats.
    const uint32_t k = std::bit_cast<uint32_t>(shifted) - uint32_t{kIntegerRounderBits};
    const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(k) >> 1);
    const float scale_a = std::bit_cast<float>((half + 127u) << 23);
    const float scale_b = std::bit_cast<float>((k - half + 127u) << 23);
    return p * scale_a * scale_b;
}

// log(0) is -infinity, of a negative number NaN.
[[gnu::always_inline]] inline float log(float x) {
    const bool is_small = x < 1.17549435e-38f;
    const float scaled = is_small ? x * 8388608.0f : x;
    // Splits at sqrt(1/2): mantissa in [0.7071, 1.4142).
    const uint32_t bits = std::bit_cast<uint32_t>(scaled) - 0x3f3504f3u;
    const int32_t exponent = (static_cast<int32_t>(bits) >> 23) - (is_small ? 23 : 0);
    const float mantissa = std::bit_cast<float>((bits & 0x007fffffu) + 0x3f3504f3u);
    // log m = 2 atanh(s) with s = (m - 1) / (m + 1), |s| <= 0.1716.
    const float f = mantissa - 1.0f;
    const float s = f / (2.0f + f);
    const float z = s * s;
    float p = 2.0f / 9.0f;
    p = p * z + 2.0f / 7.0f;
    p = p * z + 2.0f / 5.0f;
    p = p * z + 2.0f / 3.0f;
    const float n = static_cast<float>(exponent);
    // 2s = f - s·f loses nothing near 1, where f is exact and small.
    const float y = n * 0.693359375f + (f + (n * -2.12194440054690583e-4f + s * (z * p - f)));
    const float infinity = std::bit_cast<float>(0x7f800000u);
    const float nan = std::bit_cast<float>(0x7fc00000u);
    const float special = x == 0.0f ? -infinity : (x < 0.0f ? nan : x);
    const bool is_ordinary = x > 0.0f && x < infinity;
    return is_ordinary ? y : special;
}

// 1 / (1 + e^-x), accurate in both tails.
[[gnu::always_inline]] inline float sigmoid(float x) {
    const float e = exp(x < 0.0f ? x : -x);
    const float numerator = x < 0.0f ? e : 1.0f;
    return numerator / (1.0f + e);
}

// x · sigmoid(x); NaN at -infinity.
[[gnu::always_inline]] inline float silu(float x) {
    return x * sigmoid(x);
}

// log(1 + e^x) = max(x, 0) + log(1 + e) with e = e^-|x|. What 1 + e rounds away comes back with
// e / ((1 + e) - 1), so small e keep their precision.
[[gnu::always_inline]] inline float softplus(float x) {
    const float e = exp(x < 0.0f ? x : -x);
    const float u = 1.0f + e;
    const float d = u - 1.0f;
    const float small = d == 0.0f ? e : log(u) * (e / (d == 0.0f ? 1.0f : d));
    return (x < 0.0f ? 0.0f : x) + small;
}

// x · (1 + erf(x / √2)) / 2 = max(x, 0) - |x| · Q(|x|) with the normal tail Q(a) = (1 - erf(a /
// √2)) / 2, so nothing cancels where x is negative. Meant for bf16 values, whose squares are exact.
// NaN at the infinities.
[[gnu::always_inline]] inline float gelu(float x) {
    const float a = x < 0.0f ? -x : x;
    // Q(a) · e^(a²/2) / t as a polynomial in t, 0 <= a <= 14 (Chebyshev, 7e-8).
    const float t = 1.0f / (1.0f + 0.34375f * a);
    float p = -0.02871571675f;
    p = p * t + 0.1480556832f;
    p = p * t + -0.279956736f;
    p = p * t + 0.199791774f;
    p = p * t + -0.04501635542f;
    p = p * t + 0.1148975222f;
    p = p * t + 0.1162199755f;
    p = p * t + 0.1376075425f;
    p = p * t + 0.1371162996f;
    const float tail = a * (p * t) * exp(-0.5f * (a * a));
    return (x < 0.0f ? 0.0f : x) - tail;
}

// x · (1 + tanh(√(2/π) · (x + 0.044715·x³))) / 2, which is x · sigmoid of twice tanh's argument.
[[gnu::always_inline]] inline float gelu_tanh(float x) {
    return x * sigmoid(x * (1.5957691216f + 0.0713548162726f * (x * x)));
}

}  // namespace afd::ops
