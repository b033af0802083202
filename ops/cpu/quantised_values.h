// SPDX-License-Identifier: Apache-2.0
#pragma once

// Values of a quantised row, int8 or e4m3, for what expands them to bf16, (q · scale) →bf16, with
// the same bits in every numeric class. Included by kernels_*.cc only.
//
// Lanes is what an instruction set makes of it:
//   Floats, kWidth                     registers of floats
//   load(from), broadcast(value), multiply(a, b)
//   kIsEvenAndOdd                      of 2 · kWidth values a has the even ones and b the odd ones,
//                                      or a the first half of them and b the second one
//   int8_floats(q, a, b)               int8 values, divided by kInt8Factor
//   e4m3_floats(q, a, b)               e4m3 values, divided by kE4m3Factor
//   int8_half<is_odd>(q), e4m3_half    of those the even or the odd ones, where kIsEvenAndOdd
//   store_rounded(to, a, b)            bf16 of both, of which none is a NaN or subnormal; they are
//                                      below kRoundedMost, or if that is infinite infinite, too

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/fp8_kernels.h"
#include "ops/format/kv_dtype.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// from_float() without its look for a NaN, which is half of the work. REQUIRES: value is no NaN.
inline Bf16 round_number(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return Bf16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// What a tile's values are. kLeast: the least magnitude but 0.
struct Int8Values {
    static constexpr float kLeast = 1.0f;
    template <typename Lanes>
    static constexpr float kFactor = Lanes::kInt8Factor;
    template <typename Lanes, typename Floats>
    [[gnu::always_inline]] static void load(const std::byte* q, Floats& a, Floats& b) {
        Lanes::int8_floats(q, a, b);
    }
    template <typename Lanes, bool kIsOdd>
    [[gnu::always_inline]] static auto half(const std::byte* q) {
        return Lanes::template int8_half<kIsOdd>(q);
    }
    // As plain loops, which the compiler vectorises.
    static void expand(const std::byte* from, float scale, size_t count, Bf16* x) {
        const auto* q = reinterpret_cast<const int8_t*>(from);
        if (!std::isfinite(scale)) {
            for (size_t i = 0; i < count; ++i) x[i] = from_float(static_cast<float>(q[i]) * scale);
            return;
        }
        for (size_t i = 0; i < count; ++i) x[i] = round_number(static_cast<float>(q[i]) * scale);
    }
};

struct E4m3Values {
    static constexpr float kLeast = 0x1p-9f;
    template <typename Lanes>
    static constexpr float kFactor = Lanes::kE4m3Factor;
    template <typename Lanes, typename Floats>
    [[gnu::always_inline]] static void load(const std::byte* q, Floats& a, Floats& b) {
        Lanes::e4m3_floats(q, a, b);
    }
    template <typename Lanes, bool kIsOdd>
    [[gnu::always_inline]] static auto half(const std::byte* q) {
        return Lanes::template e4m3_half<kIsOdd>(q);
    }
    static void expand(const std::byte* from, float scale, size_t count, Bf16* x) {
        const auto* q = reinterpret_cast<const uint8_t*>(from);
        // Words of their own: a loop that changes the width of its elements is slow everywhere.
        std::array<uint32_t, kKvTile> wide;
        for (size_t i = 0; i < count; ++i) wide[i] = q[i];
        for (size_t i = 0; i < count; ++i) wide[i] = from_float(from_fp8(wide[i]) * scale).bits;
        for (size_t i = 0; i < count; ++i) x[i].bits = static_cast<uint16_t>(wide[i]);
    }
};

// Scales for which Lanes::store_rounded() takes all products, also where the scale is multiplied by
// kFactor first: 0, and those from kLeast on and below kMost.
template <typename Lanes, typename Values>
struct OrdinaryScales {
    static constexpr float kFactor = Values::template kFactor<Lanes>;
    static constexpr float kGreatest = 512.0f;  // Magnitudes are below it.
    static constexpr float kMost =
        std::min(0x1p127f / std::max(kFactor, 1.0f), Lanes::kRoundedMost / kGreatest);
    static constexpr float kLeast = 0x1p-126f / std::min(kFactor, Values::kLeast);
};

template <typename Lanes, typename Values>
[[gnu::always_inline]] inline bool is_ordinary(float scale) {
    using Scales = OrdinaryScales<Lanes, Values>;
    return scale == 0.0f || (scale >= Scales::kLeast && scale < Scales::kMost);
}

}  // namespace
}  // namespace afd::ops::cpu
