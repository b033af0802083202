// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of bf16 weights with AMX. Compiled into ops/cpu/amx/kernels_amx.cc and tests only.

#include "ops/cpu/amx/tile_product_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// Elements of depth of one product.
constexpr size_t kStepDepth = kTileRowBytes / sizeof(Bf16);

struct AddBf16 {
    template <typename Unit, int kC, int kA, int kB>
    void operator()() const {
        Unit::template add_bf16<kC, kA, kB>();
    }
};

template <typename Unit>
void amx_tile(const TileArguments& a) {
    multiply_tiles<Unit, AddBf16{}>(
        {.rows = {reinterpret_cast<const std::byte*>(a.x), a.x_stride * sizeof(Bf16), a.num_rows},
         .row_bytes = a.depth * sizeof(Bf16),
         .panel = reinterpret_cast<const std::byte*>(a.panel),
         .panel_bytes = a.panel_elements * sizeof(uint16_t),
         .num_panels = a.num_panels,
         .out = reinterpret_cast<std::byte*>(a.out),
         .goes_on = a.goes_on,
         .is_from_memory = a.fetch_ahead.bytes > 0});
}

}  // namespace
}  // namespace afd::ops::cpu
