// SPDX-License-Identifier: Apache-2.0

// Numeric class amx with the instruction: tdpbf16ps, 16 times 16 sums of 32 products a step, and
// tdpbsud for int8 weights. int4, mxfp4 and fp8 weights are unpacked to bf16 pairs, of whose lines
// a tile of B is every second one. Compiled like kernels_avx512_bf16.cc.

#include "ops/cpu/amx/attention_kernels_amx.h"
#include "ops/cpu/amx/few_int4_rows_amx.h"
#include "ops/cpu/amx/product_kernels_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// Up to so many rows are sums of the vector unit where weights come from memory: ordinary loads of
// two panels in turn get lines faster than loads of tiles. Two threads on two cores of a Granite
// Rapids, parts of a plain read, tiles first: one row 0.90 and 1.10, four rows 0.89 and 1.02.
constexpr size_t kVectorRows = 4;

void bf16_tile(const TileArguments& a) {
    const bool is_from_memory = a.fetch_ahead.bytes > 0;
    if (is_from_memory && a.num_rows <= kVectorRows) return amx_avx512_kernels().tile(a);
    amx_tile<AmxTileUnit>(a);
}

void int4_tile(const Int4TileArguments& a) {
    const bool is_from_memory = a.fetch_ahead.bytes > 0;
    const bool are_few = is_from_memory && a.num_rows <= few_int4_rows(a.groups);
    if (are_few && amx_few_int4_rows(a)) return;
    amx_int4_tile<AmxTileUnit, avx512_bf16_kernels>(a);
}

}  // namespace

const Kernels& amx_kernels() {
    static const Kernels kTable = [] {
        Kernels table = avx512_bf16_kernels();
        set_product_kernels<AmxTileUnit, avx512_bf16_kernels>(table);
        table.tile = bf16_tile;
        table.int4_tile = int4_tile;
        set_attention_kernels<AmxTileUnit>(table);
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
