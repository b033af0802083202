// SPDX-License-Identifier: Apache-2.0
#pragma once

// Fp16: an IEEE-754 half, as operators of the seeds take and give it.
//
// Arithmetic happens in fp32, as with Bf16. round_to<T>(v) and to_float(v) are the two conversions
// that code for several element types uses. Always inlined, for the reason given in
// ops/tensor/bf16.h.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "ops/tensor/bf16.h"

namespace afd::ops {

struct Fp16 {
    uint16_t bits = 0;

    friend bool operator==(Fp16, Fp16) = default;  // Compares bits: -0 != +0, NaN == NaN.
};
static_assert(sizeof(Fp16) == 2, "rows of Fp16 are copied to and from windows verbatim");

// Widens exactly, subnormals and NaN included.
[[gnu::always_inline]] inline float to_float(Fp16 value) {
    const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fffu) << 13;
    // The exponent's bias grows by 112; the product also normalises subnormals.
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

[[gnu::always_inline]] inline float to_float(float value) {
    return value;
}

// Rounds to nearest, ties to even; overflow gives infinity, a NaN stays a (quiet) NaN.
[[gnu::always_inline]] inline Fp16 fp16_from_float(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t normal = (magnitude + 0x0fffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    // Below 2^-14 the sum has a spacing of 2^-24, that of the subnormals: the adder rounds.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    const uint32_t bounded = magnitude >= 0x477ff000u ? 0x7c00u : finite;
    const uint32_t quiet_nan = 0x7e00u | ((bits >> 13) & 0x01ffu);
    const uint32_t result = magnitude > 0x7f800000u ? quiet_nan : bounded;
    return Fp16{static_cast<uint16_t>(sign | result)};
}

// The value, rounded once to T.
template <typename T>
[[gnu::always_inline]] inline T round_to(float value) {
    if constexpr (std::is_same_v<T, Fp16>) {
        return fp16_from_float(value);
    } else if constexpr (std::is_same_v<T, Bf16>) {
        return from_float(value);
    } else {
        static_assert(std::is_same_v<T, float>, "a floating element type");
        return value;
    }
}

}  // namespace afd::ops
