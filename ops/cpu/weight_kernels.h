// SPDX-License-Identifier: Apache-2.0
#pragma once

// Loops over int8, int4 and fp8 panels (ops/format/packed_shape.h) that need no instruction set.
// Included by ops/cpu/kernels_*.cc only.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/cpu/fp8_kernels.h"
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

// For classes whose bf16 panels have the elements of a column apart.
[[maybe_unused]] void unpack_fp8(const UnpackFp8Arguments& a) {
    for (size_t k = 0; k < a.depth; k += 4) {
        uint32_t quads[kPanelColumns];
        std::memcpy(quads, a.values + k * kPanelColumns, sizeof quads);
        for (size_t i = 0; i < 4; ++i) {
            uint16_t* out = a.out + (k + i) * kPanelColumns;
            for (size_t j = 0; j < kPanelColumns; ++j) {
                const float value = from_fp8(quads[j] >> 8 * i & 0xffu);
                out[j] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
            }
        }
    }
}

// With MultiplyAdd{}(a, b, sum) = a · b + sum.
template <typename MultiplyAdd>
void add_block(const BlockSumArguments& a) {
    constexpr size_t kHalfPanel = kPanelColumns / 2;
    const float* products = a.products;
    float* sums = a.sums;
    for (size_t i = 0; i < 2 * a.num_rows; ++i, products += kHalfPanel, sums += kHalfPanel) {
        const float scale = a.scales[i % 2];
        for (size_t j = 0; j < kHalfPanel; ++j) {
            sums[j] = MultiplyAdd{}(scale, products[j], a.goes_on ? sums[j] : 0.0f);
        }
    }
}

}  // namespace
}  // namespace afd::ops::cpu
