// SPDX-License-Identifier: Apache-2.0
#pragma once

// The entries of a table of class amx that leave few rows and weights from memory to the vector
// unit. Compiled into ops/cpu/amx/kernels_amx.cc and tests only.

#include <cstddef>

#include "ops/cpu/amx/expanded_tile_amx.h"
#include "ops/cpu/amx/few_int4_rows_amx.h"
#include "ops/cpu/amx/tile_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// Of bf16 weights: ordinary loads of two panels in turn get lines faster than loads of tiles. Two
// threads on two cores of a Granite Rapids, parts of a plain read, tiles first: one row 0.90 and
// 1.10, four rows 0.89 and 1.02.
constexpr size_t kFewBf16Rows = 4;

template <typename Unit>
void few_or_tile_rows(const TileArguments& a) {
    const bool is_from_memory = a.fetch_ahead.bytes > 0;
    if (is_from_memory && a.num_rows <= kFewBf16Rows) return amx_avx512_kernels().tile(a);
    amx_tile<Unit>(a);
}

template <typename Unit, auto kPlain>
void few_or_tile_int4_rows(const Int4TileArguments& a) {
    const bool is_from_memory = a.fetch_ahead.bytes > 0;
    const bool are_few = is_from_memory && a.num_rows <= few_int4_rows(a.groups);
    if (are_few && amx_few_int4_rows(a)) return;
    amx_int4_tile<Unit, kPlain>(a);
}

// After set_product_kernels(), whose tiles take the other rows.
template <typename Unit, auto kPlain>
void set_few_row_kernels(Kernels& table) {
    table.tile = few_or_tile_rows<Unit>;
    table.int4_tile = few_or_tile_int4_rows<Unit, kPlain>;
}

}  // namespace
}  // namespace afd::ops::cpu
