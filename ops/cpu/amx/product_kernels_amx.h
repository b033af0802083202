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

// Rows that pass whole panels, block by block: the first block reads a panel from memory, and the
// others find it in the second-level cache; int4 is unpacked once for all of them. With an expert
// of 2048 x 1408 on a Granite Rapids, in parts of the time that pieces take: bf16 and int8, 64
// rows, 0.8 and 0.9, with 96 as much or more; int4, 33 rows 0.5, 64 0.6, 128 0.75, 256 0.86 to
// 1.04, 512 1.36; fp8, 33 rows and more, 1.1 to 1.3.
constexpr size_t kAmxPlainPanelRows = 2 * kAmxRows;
constexpr size_t kAmxNibblePanelRows = 6 * kAmxRows;

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
                   .plain_panel_rows = kAmxPlainPanelRows,
                   .nibble_panel_rows = kAmxNibblePanelRows,
                   .fp8_panel_rows = kAmxRows};
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
