// SPDX-License-Identifier: Apache-2.0
#pragma once

// Loops over int8 and int4 panels (ops/packed_shape.h) that need no instruction set. Included by
// ops/cpu/kernels_*.cc only.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/packed_shape.h"

namespace afd::ops::cpu {
namespace {

void int8_tile(const Int8TileArguments& a) {
    const auto* values = reinterpret_cast<const uint8_t*>(a.panel);
    for (size_t r = 0; r < a.num_rows; ++r) {
        int32_t sums[kPanelColumns] = {};
        for (size_t k = 0; k < a.depth; ++k) {
            const int32_t x = a.x[r * a.x_stride + k];
            const uint8_t* weights = values + k / 4 * 4 * kPanelColumns + k % 4;
            for (size_t j = 0; j < kPanelColumns; ++j) sums[j] += x * (weights[4 * j] - 128);
        }
        std::memcpy(a.out + r * kPanelColumns, sums, sizeof sums);
    }
}

void unpack_int4(const UnpackArguments& a) {
    for (size_t k = 0; k < a.depth; ++k) {
        const std::byte* group = a.panel + k / a.group_size * int4_group_bytes(a.group_size);
        const size_t in_group = k % a.group_size;
        const std::byte* values =
            group + kInt4ScaleBytes + in_group / 4 * 64 + in_group % 4 / 2 * 8 + in_group % 2;
        for (size_t j = 0; j < kPanelColumns; ++j) {
            Bf16 scale;
            std::memcpy(&scale, group + j * sizeof scale, sizeof scale);
            const auto byte = static_cast<unsigned>(values[j % 16 / 4 * 16 + j % 4 * 2]);
            const unsigned nibble = j < 16 ? byte & 0xfu : byte >> 4;
            const auto magnitude = static_cast<float>(nibble & 7u);
            const float q = (nibble & 8u) != 0 ? -magnitude : magnitude;
            a.out[k * kPanelColumns + j] = from_float(q * to_float(scale)).bits;
        }
    }
}

}  // namespace
}  // namespace afd::ops::cpu
