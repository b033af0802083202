// SPDX-License-Identifier: Apache-2.0
#pragma once

// Loops over int8 and int4 panels (ops/format/packed_shape.h) that need no instruction set.
// Included by ops/cpu/kernels_*.cc only.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/fp16.h"

namespace afd::ops::cpu {
namespace {

[[maybe_unused]] int32_t sum_int8(const int8_t* x, size_t count) {
    int32_t sum = 0;
    for (size_t i = 0; i < count; ++i) sum += x[i];
    return sum;
}

void unpack_int4(const UnpackArguments& a) {
    for (size_t k = 0; k < a.depth; ++k) {
        const std::byte* group = a.panel + k / a.group_size * int4_group_bytes(a.group_size);
        const size_t first = k / a.group_size * a.group_size;
        const size_t in_group = k - first;
        const std::byte* values = group + kInt4ScaleBytes + in_group / 8 * kInt4StepBytes +
                                  in_group % 2 * 2 + in_group % 8 / 4;
        const size_t shift = in_group % 4 / 2 * 4;
        for (size_t j = 0; j < kPanelColumns; ++j) {
            uint16_t bits;
            std::memcpy(&bits, group + j * sizeof bits, sizeof bits);
            const float scale = a.has_fp16_scales ? to_float(Fp16{bits}) : to_float(Bf16{bits});
            const auto byte = static_cast<unsigned>(values[j * 4]);
            const auto q = static_cast<float>(static_cast<int>((byte >> shift & 0xfu) ^ 8u) - 8);
            a.out[k * kPanelColumns + j] = from_float(q * scale).bits;
        }
    }
}

}  // namespace
}  // namespace afd::ops::cpu
