// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of int8 weights with AMX. Panels have the weights with 128 added, which tdpbsud takes as
// bytes without a sign; Σ (w + 128)·x - 128·Σ x is the sum, exact modulo 2^32 like that of every
// class. Compiled into ops/cpu/amx/kernels_amx.cc and tests only.

#include <cstdint>

#include "ops/cpu/amx/tile_product_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

struct AddBytes {
    template <typename Unit, int kC, int kA, int kB>
    void operator()() const {
        Unit::template add_bytes<kC, kA, kB>();
    }
};

template <typename Unit>
void amx_int8_tile(const Int8TileArguments& a) {
    multiply_tiles<Unit, AddBytes{}>(
        {.rows = {reinterpret_cast<const std::byte*>(a.x), a.x_stride, a.num_rows},
         .row_bytes = a.depth,
         .panel = a.panel,
         .panel_bytes = 0,
         .num_panels = 1,
         .out = reinterpret_cast<std::byte*>(a.out),
         .goes_on = false,
         .is_from_memory = a.fetch_ahead.bytes > 0});
    for (size_t r = 0; r < a.num_rows; ++r) {
        const uint32_t surplus = 128u * static_cast<uint32_t>(a.row_sum[r]);
        int32_t* sums = a.out + r * kPanelColumns;
        for (size_t i = 0; i < kPanelColumns; ++i) {
            sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) - surplus);
        }
    }
}

}  // namespace
}  // namespace afd::ops::cpu
