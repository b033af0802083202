// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/cache_quant.h"

#include <bit>

#include "ops/tensor/math.h"

namespace afd::ops {
namespace {

// Half to even for |v| < 2^22.
float round_to_integer(float v) {
    return (v + kIntegerRounder) - kIntegerRounder;
}

float clamp(float v, float least, float most) {
    const float raised = v < least ? least : v;
    return raised > most ? most : raised;
}

// max|v|; NaN if a value is NaN or infinite.
float largest_magnitude(const float* v, size_t count) {
    // The bits of |v| order like the values, infinity and NaN above all numbers.
    uint32_t largest = 0;
    for (size_t i = 0; i < count; ++i) {
        const uint32_t bits = std::bit_cast<uint32_t>(v[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return std::bit_cast<float>(largest < 0x7f800000u ? largest : 0x7fc00000u);
}

}  // namespace

void quantise_with_scales(
    const float* v, size_t count, const float* scales, size_t scale_step, int8_t* q) {
    for (size_t i = 0; i < count; ++i) {
        const float value = v[i] * scales[i * scale_step];
        // NaN gives 0 (the specification, section 11); the comparisons of a clamp would let it
        // through.
        const float number = value == value ? value : 0.0f;
        q[i] = static_cast<int8_t>(round_to_integer(clamp(number, -128.0f, 127.0f)));
    }
}

float quantise_tile(const float* v, size_t count, float alpha, int8_t* q) {
    const float limit = alpha * largest_magnitude(v, count);
    const float scale = limit / 127.0f;
    // Also for NaN, which is why it is not `scale <= 0`.
    if (!(scale > 0.0f)) {
        for (size_t i = 0; i < count; ++i) q[i] = 0;
        return scale;
    }
    for (size_t i = 0; i < count; ++i) {
        const float quotient = clamp(v[i], -limit, limit) / scale;
        q[i] = static_cast<int8_t>(round_to_integer(clamp(quotient, -127.0f, 127.0f)));
    }
    return scale;
}

}  // namespace afd::ops
