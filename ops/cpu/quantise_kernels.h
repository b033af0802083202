// SPDX-License-Identifier: Apache-2.0
#pragma once

// Row quantisers (ops/quantise.h) that every numeric class computes with the same bits; each kernel
// file compiles its own copy. Included by ops/cpu/kernels_*.cc only.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/bf16.h"
#include "ops/fp16.h"

namespace afd::ops::cpu {
namespace {

// Rounds to an integer, half to even: the sum's spacing is 1. REQUIRES: |value| <= 2^21.
inline int8_t round_to_int8(float value) {
    return static_cast<int8_t>(std::bit_cast<int32_t>(value + 12582912.0f) - 0x4b400000);
}

template <bool kSmooth, typename T>
inline float scaled_value(const T* x, const float* smooth, size_t i) {
    if constexpr (kSmooth) {
        return to_float(x[i]) * smooth[i];
    } else {
        return to_float(x[i]);
    }
}

template <bool kSmooth, typename T>
float quantise_row_as(const T* x, const float* smooth, size_t count, int8_t* q) {
    // Magnitudes compare as integers, and everything above the bits of infinity is NaN.
    int32_t largest = 0;
    for (size_t i = 0; i < count; ++i) {
        const float value = scaled_value<kSmooth>(x, smooth, i);
        const int32_t magnitude = std::bit_cast<int32_t>(value) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    const float scale = std::bit_cast<float>(largest) / 127.0f;
    if (scale == 0.0f || largest >= 0x7f800000) {
        std::memset(q, 0, count);
        return largest >= 0x7f800000 ? std::bit_cast<float>(0x7fc00000) : 0.0f;
    }
    for (size_t i = 0; i < count; ++i) {
        float quotient = scaled_value<kSmooth>(x, smooth, i) / scale;
        // A subnormal scale is coarse: the quotient may lie far outside.
        quotient = quotient < -127.0f ? -127.0f : quotient;
        quotient = quotient > 127.0f ? 127.0f : quotient;
        q[i] = round_to_int8(quotient);
    }
    return scale;
}

template <typename T>
float quantise_row(const T* x, const float* smooth, size_t count, int8_t* q) {
    return smooth == nullptr ? quantise_row_as<false>(x, smooth, count, q)
                             : quantise_row_as<true>(x, smooth, count, q);
}

}  // namespace
}  // namespace afd::ops::cpu
