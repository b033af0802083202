// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows of an int8 cache to bf16, as plain loops with the same bits in every numeric class; the
// compiler vectorises them. Included by kernels_*.cc only.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// from_float() without its look for a NaN, which is half of the work. REQUIRES: value is no NaN.
inline Bf16 round_number(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return Bf16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

void expand_int8_row(const int8_t* q, float scale, size_t count, Bf16* x) {
    if (!std::isfinite(scale)) {
        for (size_t i = 0; i < count; ++i) x[i] = from_float(static_cast<float>(q[i]) * scale);
        return;
    }
    for (size_t i = 0; i < count; ++i) x[i] = round_number(static_cast<float>(q[i]) * scale);
}

// REQUIRES: scales are positive numbers.
void expand_int8_channels_row(const int8_t* q, const float* scale, size_t count, Bf16* x) {
    for (size_t i = 0; i < count; ++i) x[i] = round_number(static_cast<float>(q[i]) / scale[i]);
}

}  // namespace
}  // namespace afd::ops::cpu
