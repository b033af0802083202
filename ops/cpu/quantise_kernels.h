// SPDX-License-Identifier: Apache-2.0
#pragma once

// Row quantisers (ops/linear/quantise.h) that every numeric class computes with the same bits; each
// kernel file compiles its own copy. Included by kernels_*.cc only.
//
// A division costs more than all the rest of the row, so quotients are first taken as v·(1/s),
// which differs from v/s by less than 2.4e-5 (127 · 3 · 2^-24). Both round to the same integer
// unless the product is that close to a tie; such blocks are computed again with the division.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ops/tensor/bf16.h"
#include "ops/tensor/fp16.h"
#include "ops/tensor/math.h"

namespace afd::ops::cpu {
namespace {

inline constexpr size_t kQuantiseBlock = 64;
inline constexpr float kNearTie = 0.49997f;

// REQUIRES: |value| <= 2^21.
inline int8_t round_to_int8(float value) {
    return static_cast<int8_t>(std::bit_cast<int32_t>(value + kIntegerRounder) -
                               kIntegerRounderBits);
}

template <bool kSmooth, typename T>
inline float scaled_value(const T* x, const float* smooth, size_t i) {
    if constexpr (kSmooth) {
        return to_float(x[i]) * smooth[i];
    } else {
        return to_float(x[i]);
    }
}

// Bits of the largest magnitude as a float. Magnitudes compare as integers; a NaN is above
// infinity.
template <bool kSmooth, typename T>
int32_t largest_magnitude(const T* x, const float* smooth, size_t count) {
    if constexpr (!kSmooth && !std::is_same_v<T, float>) {
        int16_t largest = 0;
        for (size_t i = 0; i < count; ++i) {
            const auto magnitude = static_cast<int16_t>(x[i].bits & 0x7fff);
            largest = magnitude > largest ? magnitude : largest;
        }
        return std::bit_cast<int32_t>(to_float(T{static_cast<uint16_t>(largest)}));
    } else {
        int32_t largest = 0;
        for (size_t i = 0; i < count; ++i) {
            const float value = scaled_value<kSmooth>(x, smooth, i);
            const int32_t magnitude = std::bit_cast<int32_t>(value) & 0x7fffffff;
            largest = magnitude > largest ? magnitude : largest;
        }
        return largest;
    }
}

template <bool kSmooth, typename T>
void divide_row(
    const T* x, const float* smooth, float scale, size_t first, size_t last, int8_t* q) {
    for (size_t i = first; i < last; ++i) {
        float quotient = scaled_value<kSmooth>(x, smooth, i) / scale;
        // A subnormal scale is coarse: the quotient may lie far outside.
        quotient = quotient < -127.0f ? -127.0f : quotient;
        quotient = quotient > 127.0f ? 127.0f : quotient;
        q[i] = round_to_int8(quotient);
    }
}

// Returns whether the block came out without a quotient close to a tie.
template <bool kSmooth, typename T>
bool multiply_block(const T* __restrict x,
                    const float* __restrict smooth,
                    float inverse,
                    int8_t* __restrict q) {
    int32_t nearest = 0;  // Bits of the largest distance from the integer.
    for (size_t i = 0; i < kQuantiseBlock; ++i) {
        const float quotient = scaled_value<kSmooth>(x, smooth, i) * inverse;
        const float shifted = quotient + kIntegerRounder;
        q[i] = static_cast<int8_t>(std::bit_cast<int32_t>(shifted) - kIntegerRounderBits);
        const float distance = quotient - (shifted - kIntegerRounder);
        const int32_t magnitude = std::bit_cast<int32_t>(distance) & 0x7fffffff;
        nearest = magnitude > nearest ? magnitude : nearest;
    }
    return nearest < std::bit_cast<int32_t>(kNearTie);
}

// How a kernel file computes q for i in [0, count) by multiplying; count is a multiple of
// kQuantiseBlock. Streamed results go past the caches, in a class that can.
struct MultiplyByBlocks {
    template <bool kSmooth, typename T>
    static void run(const T* x,
                    const float* smooth,
                    float scale,
                    size_t count,
                    int8_t* q,
                    bool /*is_streamed*/) {
        for (size_t i = 0; i < count; i += kQuantiseBlock) {
            const float* block_smooth = kSmooth ? smooth + i : nullptr;
            if (!multiply_block<kSmooth>(x + i, block_smooth, 1.0f / scale, q + i)) {
                divide_row<kSmooth>(x, smooth, scale, i, i + kQuantiseBlock, q);
            }
        }
    }

    static void end_streaming() {}
};

template <typename Multiply, bool kSmooth, typename T>
float quantise_row(const T* x, const float* smooth, size_t count, int8_t* q, bool is_streamed) {
    const int32_t largest = largest_magnitude<kSmooth>(x, smooth, count);
    const float scale = std::bit_cast<float>(largest) / 127.0f;
    if (scale == 0.0f || largest >= 0x7f800000) {
        std::fill_n(q, count, int8_t{0});
        return largest >= 0x7f800000 ? std::bit_cast<float>(0x7fc00000) : 0.0f;
    }
    // The bound above needs an inverse that neither overflows nor loses bits.
    const bool has_inverse = scale > 0x1p-100f && scale < 0x1p100f;
    const size_t num_multiplied = has_inverse ? count / kQuantiseBlock * kQuantiseBlock : 0;
    Multiply::template run<kSmooth>(x, smooth, scale, num_multiplied, q, is_streamed);
    divide_row<kSmooth>(x, smooth, scale, num_multiplied, count, q);
    return scale;
}

// Kernels::QuantiseRows.
template <typename T, typename Multiply = MultiplyByBlocks>
void quantise_rows(const T* x,
                   const float* smooth,
                   size_t num_rows,
                   size_t count,
                   int8_t* q,
                   float* scale,
                   bool is_streamed) {
    // Only whole lines go past the caches.
    is_streamed = is_streamed && count % 64 == 0 && reinterpret_cast<uintptr_t>(q) % 64 == 0;
    for (size_t row = 0; row < num_rows; ++row, x += count, q += count) {
        scale[row] = smooth == nullptr
                         ? quantise_row<Multiply, false>(x, smooth, count, q, is_streamed)
                         : quantise_row<Multiply, true>(x, smooth, count, q, is_streamed);
    }
    if (is_streamed) Multiply::end_streaming();
}

}  // namespace
}  // namespace afd::ops::cpu
