// SPDX-License-Identifier: Apache-2.0
#pragma once

// Loops over int8, int4, mxfp4 and fp8 panels (ops/format/packed_shape.h) that need no instruction
// set. Included by kernels_*.cc only.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/cpu/fp8_kernels.h"
#include "ops/cpu/int4_head.h"
#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

[[maybe_unused]] int32_t sum_int8(const int8_t* x, size_t count) {
    int32_t sum = 0;
    for (size_t i = 0; i < count; ++i) sum += x[i];
    return sum;
}

// Where element k of column j stands in a bf16 panel with kInterleave elements of a column side by
// side (bf16_interleave()).
template <size_t kInterleave>
constexpr size_t bf16_place(size_t k, size_t j) {
    return k / kInterleave * kInterleave * kPanelColumns + j * kInterleave + k % kInterleave;
}

// number(nibble): what the four bits stand for, less a zero point.
template <size_t kInterleave, typename Number>
void unpack_nibbles(const UnpackArguments& a, const Number& number) {
    // An odd depth ends in a pair that the panel has, with a zero.
    const size_t depth = (a.depth + kInterleave - 1) / kInterleave * kInterleave;
    for (size_t k = 0; k < depth; ++k) {
        const std::byte* group = a.panel + a.groups.offset(k);
        const size_t in_group = k % a.groups.size;
        const std::byte* values = group + a.groups.head_bytes() + in_group / 8 * kInt4StepBytes +
                                  in_group % 2 * 2 + in_group % 8 / 4;
        const size_t shift = in_group % 4 / 2 * 4;
        for (size_t j = 0; j < kPanelColumns; ++j) {
            const auto byte = static_cast<unsigned>(values[j * 4]);
            const float weight = number(byte >> shift & 0xfu) - int4_zero_at(group, a.groups, j);
            a.out[bf16_place<kInterleave>(k, j)] =
                from_float(weight * int4_scale_at(group, a.groups, j)).bits;
        }
    }
}

template <size_t kInterleave>
void unpack_int4(const UnpackArguments& a) {
    unpack_nibbles<kInterleave>(
        a, [](unsigned q) { return static_cast<float>(static_cast<int>(q ^ 8u) - 8); });
}

template <size_t kInterleave>
void unpack_mxfp4(const UnpackArguments& a) {
    unpack_nibbles<kInterleave>(a, from_e2m1);
}

template <size_t kInterleave>
void unpack_fp8(const UnpackFp8Arguments& a) {
    for (size_t k = 0; k < a.depth; k += 4) {
        uint32_t quads[kPanelColumns];
        std::memcpy(quads, a.values + k * kPanelColumns, sizeof quads);
        for (size_t i = 0; i < 4; ++i) {
            for (size_t j = 0; j < kPanelColumns; ++j) {
                const float value = from_fp8(quads[j] >> 8 * i & 0xffu);
                a.out[bf16_place<kInterleave>(k + i, j)] =
                    static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
            }
        }
    }
}

// With MultiplyAdd{}(a, b, sum) = a · b + sum.
template <typename MultiplyAdd>
void add_block(const BlockSumArguments& a) {
    constexpr size_t kHalfPanel = kPanelColumns / 2;
    for (size_t i = 0; i < 2 * a.num_rows; ++i) {
        const float* products = a.products + i * kHalfPanel;
        float* sums = a.sums + i * kHalfPanel;
        const float scale = a.scales[i % 2];
        // Two loops, since compilers do not vectorise one with a choice in it.
        if (a.goes_on) {
            for (size_t j = 0; j < kHalfPanel; ++j) {
                sums[j] = MultiplyAdd{}(scale, products[j], sums[j]);
            }
        } else {
            for (size_t j = 0; j < kHalfPanel; ++j) {
                sums[j] = MultiplyAdd{}(scale, products[j], 0.0f);
            }
        }
    }
}

}  // namespace
}  // namespace afd::ops::cpu
