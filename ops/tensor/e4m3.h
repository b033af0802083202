// SPDX-License-Identifier: Apache-2.0
#pragma once

// E4m3: an 8-bit float as checkpoints store weights in it (the "FN" variant): sign, four bits of
// exponent with bias 7, three of mantissa; no infinity, largest 448. All bits of the magnitude set
// (0x7f and 0xff) is no number.
//
// Every value is a bf16. Always inlined, for the reason given in ops/tensor/bf16.h.

#include <bit>
#include <cstdint>

#include "ops/tensor/bf16.h"

namespace afd::ops {

struct E4m3 {
    uint8_t bits = 0;

    friend bool operator==(E4m3, E4m3) = default;  // Compares bits: -0 != +0.
};
static_assert(sizeof(E4m3) == 1, "matrices of E4m3 are read from checkpoints verbatim");

[[gnu::always_inline]] constexpr bool is_nan(E4m3 value) {
    return (value.bits & 0x7fu) == 0x7fu;
}

// Widens exactly, subnormals included. What is no number becomes ±480.
[[gnu::always_inline]] constexpr float to_float(E4m3 value) {
    const uint32_t sign = static_cast<uint32_t>(value.bits & 0x80u) << 24;
    // The exponent's bias grows by 120; the product also normalises subnormals.
    const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fu) << 20;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p120f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
}

// The same; exact as well.
[[gnu::always_inline]] constexpr Bf16 to_bf16(E4m3 value) {
    return Bf16{static_cast<uint16_t>(std::bit_cast<uint32_t>(to_float(value)) >> 16)};
}

}  // namespace afd::ops
