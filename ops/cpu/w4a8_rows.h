// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of int8 rows with int4 weights, and their rows (ops/format/w4a8_rows.h), as plain loops.
// Included by ops/cpu/kernels_portable.cc only.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/cpu/int4_head.h"
#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

constexpr size_t kW4a8Step = 8;  // Elements of a word of nibbles,
// in the order in which a row has them.
constexpr std::array<uint8_t, kW4a8Step> kW4a8Order = {0, 4, 1, 5, 2, 6, 3, 7};

void arrange_w4a8(const ArrangeArguments& a) {
    const size_t values_bytes = w4a8_values_bytes(a.depth);
    for (size_t k = 0; k < values_bytes; ++k) {
        const size_t from = k / kW4a8Step * kW4a8Step + kW4a8Order[k % kW4a8Step];
        a.row[k] = from < a.depth ? a.q[from] : int8_t{0};
    }
    auto* starts = reinterpret_cast<int32_t*>(a.row + values_bytes);
    for (size_t k = 0; k < a.depth; k += a.group_size) {
        int32_t sum = 0;
        for (size_t i = k; i < std::min(k + a.group_size, a.depth); ++i) sum += a.q[i];
        *starts++ = -8 * sum;
    }
}

void w4a8_tile(const W4a8TileArguments& a) {
    for (size_t r = 0; r < a.num_rows; ++r) {
        const int8_t* x = a.x + r * a.x_stride;
        const int32_t* start = a.group_starts(r);
        const std::byte* group = a.panel;
        float sums[kPanelColumns] = {};
        for (size_t first = 0; first < a.depth; first += a.groups.size, ++start) {
            const size_t count = std::min(a.groups.size, a.depth - first);
            const std::byte* bytes = group + a.groups.head_bytes();
            int32_t products[kPanelColumns];
            for (size_t j = 0; j < kPanelColumns; ++j) {
                const auto zero = static_cast<int32_t>(int4_zero_at(group, a.groups, j));
                products[j] = *start / 8 * (8 + zero);
            }
            for (size_t k = 0; k < count; k += kW4a8Step, x += kW4a8Step, bytes += kInt4StepBytes) {
                for (size_t i = 0; i < 4 * kPanelColumns; ++i) {
                    const auto q = static_cast<int>(static_cast<unsigned>(bytes[i]) ^ 0x88u);
                    products[i / 4] += (q & 0xf) * x[i % 4] + (q >> 4) * x[4 + i % 4];
                }
            }
            for (size_t j = 0; j < kPanelColumns; ++j) {
                const float scale = int4_scale_at(group, a.groups, j);
                sums[j] = std::fmaf(scale, static_cast<float>(products[j]), sums[j]);
            }
            group += a.groups.bytes(count);
        }
        std::memcpy(a.out + r * kPanelColumns, sums, sizeof sums);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
