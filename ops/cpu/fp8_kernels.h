// SPDX-License-Identifier: Apache-2.0
#pragma once

// Values of e4m3, and rows to fp8 (ops/linear/fp8_rows.h), with the same bits in every numeric
// class; each kernel file compiles its own copy. Included by kernels_*.cc only.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "ops/format/fp8_layout.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/math.h"

namespace afd::ops::cpu {
namespace {

inline constexpr float kFp8Max = 448.0f;
inline constexpr uint32_t kFp8MaxBits = 0x43e00000;     // 448
inline constexpr uint32_t kFp8NormalBits = 0x3c800000;  // 2^-6, the least normal value
inline constexpr uint32_t kFp8Bias = 120;               // Of an fp32 exponent to an e4m3 one.

// Without a branch: compilers sink the work of one side into it and then leave the loop scalar.
[[gnu::always_inline]] inline uint32_t choose(bool condition, uint32_t yes, uint32_t no) {
    const uint32_t mask = 0u - static_cast<uint32_t>(condition);
    return (yes & mask) | (no & ~mask);
}

// REQUIRES: no NaN.
[[gnu::always_inline]] inline uint32_t to_fp8(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const auto most = static_cast<int32_t>(kFp8MaxBits);
    const auto given = static_cast<int32_t>(bits & 0x7fffffffu);
    const auto magnitude = static_cast<uint32_t>(given < most ? given : most);
    const uint32_t normal =
        ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (kFp8Bias << 3);
    // A multiple of 2^-9; 8 of them are the least normal value.
    const float multiples = std::bit_cast<float>(magnitude) * 512.0f;
    const uint32_t subnormal = std::bit_cast<uint32_t>(multiples + kIntegerRounder) & 0xffu;
    const bool is_subnormal =
        static_cast<int32_t>(magnitude) < static_cast<int32_t>(kFp8NormalBits);
    return choose(is_subnormal, subnormal, normal) | ((bits >> 24) & 0x80u);
}

[[gnu::always_inline]] inline float from_fp8(uint32_t value) {
    const uint32_t magnitude = value & 0x7fu;
    const uint32_t normal = (magnitude << 20) + (kFp8Bias << 23);
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9f;
    const bool is_subnormal = static_cast<int32_t>(magnitude) < 8;
    const uint32_t bits = choose(is_subnormal, std::bit_cast<uint32_t>(subnormal), normal);
    return std::bit_cast<float>(bits | ((value & 0x80u) << 24));
}

// Returns the scale.
inline float encode_fp8_block(const Bf16* __restrict x, size_t count, uint8_t* __restrict q) {
    uint16_t largest = 0;
    for (size_t i = 0; i < count; ++i) {
        const auto magnitude = static_cast<uint16_t>(x[i].bits & 0x7fffu);
        largest = magnitude > largest ? magnitude : largest;
    }
    const float scale = to_float(Bf16{largest}) / kFp8Max;
    const bool is_finite = largest < 0x7f80u;
    if (!is_finite || scale == 0.0f) {
        std::memset(q, 0, count);
        return is_finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    }
    // Words of their own: a loop that changes the width of its elements is slow everywhere.
    std::array<uint32_t, kFp8BlockValues> wide;
    for (size_t i = 0; i < count; ++i) wide[i] = to_fp8(to_float(x[i]) / scale);
    for (size_t i = 0; i < count; ++i) q[i] = static_cast<uint8_t>(wide[i]);
    return scale;
}

[[maybe_unused]] void encode_fp8_row(const Bf16* x, size_t count, std::byte* row) {
    auto* q = reinterpret_cast<uint8_t*>(row);
    std::byte* scales = row + count;
    for (size_t first = 0; first < count; first += kFp8BlockValues) {
        const float scale =
            encode_fp8_block(x + first, std::min(kFp8BlockValues, count - first), q + first);
        std::memcpy(scales, &scale, sizeof(scale));
        scales += sizeof(scale);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
