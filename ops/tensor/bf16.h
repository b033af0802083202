// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bf16: the upper half of an IEEE-754 single, as stored in checkpoints, windows and caches.
//
// Arithmetic happens in fp32; a value becomes bf16 only at the rounding points of the decoder.
// The functions are always inlined: the kernel files of ops/cpu are compiled for newer instruction
// sets, and an out-of-line copy made there could be linked into code for older processors.

#include <bit>
#include <cstdint>

namespace afd::ops {

struct Bf16 {
    uint16_t bits = 0;

    friend bool operator==(Bf16, Bf16) = default;  // Compares bits: -0 != +0, NaN == NaN.
};
static_assert(sizeof(Bf16) == 2, "rows of Bf16 are copied to and from windows verbatim");

// Widens exactly.
[[gnu::always_inline]] inline float to_float(Bf16 value) {
    return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even; overflow gives infinity, a NaN stays a (quiet) NaN.
[[gnu::always_inline]] inline Bf16 from_float(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet_nan = (bits >> 16) | 0x40u;
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return Bf16{static_cast<uint16_t>(is_nan ? quiet_nan : rounded)};
}

}  // namespace afd::ops
