// SPDX-License-Identifier: Apache-2.0
#pragma once

// The entries of a table of class amx that multiply rows and weights with tiles. Compiled into
// ops/cpu/amx/kernels_amx.cc and tests only, whose tables differ in nothing but the unit.

#include "ops/cpu/amx/expanded_tile_amx.h"
#include "ops/cpu/amx/fp8_pieces_amx.h"
#include "ops/cpu/amx/int8_amx.h"
#include "ops/cpu/amx/piece_product_amx.h"
#include "ops/cpu/amx/tile_amx.h"
#include "ops/cpu/amx/tile_product_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// The first 32 rows of two blocks read a panel from memory, and the others find it in the
// second-level cache: with 64 rows of an expert of 2048 x 1408, 0.8 (bf16) and 0.9 (int8) of the
// time that pieces take on a Granite Rapids; with 96 as much, or more.
constexpr size_t kAmxWholePanelRows = 2 * kAmxRows;

// kPlain() gives the table that `table` is a copy of: its kernels unpack weights and add blocks.
template <typename Unit, auto kPlain>
void set_product_kernels(Kernels& table) {
    table.shape = {.rows = kAmxRows,
                   .row_panels = kAmxRows,
                   .near_rows = 0,
                   .int4_rows = kAmxRows,
                   .int4_product_rows = kAmxRows,
                   .int4_zero_product_rows = kAmxRows,
                   .fp8_rows = kAmxRows,
                   .fp8_product_rows = kAmxRows,
                   .w4a8_rows = table.shape.w4a8_rows,
                   .plain_panel_rows = kAmxWholePanelRows,
                   .unpacked_panel_rows = kAmxRows};
    table.tile = amx_tile<Unit>;
    table.bf16_pieces = amx_pieces<Unit, AddBf16{}>;
    table.int8_pieces = amx_pieces<Unit, AddBytes{}>;
    table.fp8_pieces = amx_fp8_pieces<Unit, kPlain>;
    table.int8_tile = amx_int8_tile<Unit>;
    table.int4_tile = amx_int4_tile<Unit, kPlain>;
    table.unpack_groups = nullptr;
    table.group_tile = nullptr;
    table.fp8_tile = amx_fp8_tile<Unit, kPlain>;
}

}  // namespace
}  // namespace afd::ops::cpu
