// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a group of an int4 panel begins with (ops/format/packed_shape.h), column by column. Included
// by the kernel files only.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/format/packed_shape.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/fp16.h"

namespace afd::ops::cpu {
namespace {

// Bits of the scale of column j.
inline uint16_t int4_scale_bits(const std::byte* group, size_t j) {
    uint16_t bits;
    std::memcpy(&bits, group + j * sizeof bits, sizeof bits);
    return bits;
}

inline float int4_scale_at(const std::byte* group, const Int4Groups& groups, size_t j) {
    const uint16_t bits = int4_scale_bits(group, j);
    return groups.has_fp16_scales ? to_float(Fp16{bits}) : to_float(Bf16{bits});
}

// 0 without zero points.
inline float int4_zero_at(const std::byte* group, const Int4Groups& groups, size_t j) {
    if (!groups.has_zeros) return 0.0f;
    return to_float(Bf16{int4_scale_bits(group + kInt4ScaleBytes, j)});
}

}  // namespace
}  // namespace afd::ops::cpu
