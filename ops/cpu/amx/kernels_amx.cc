// SPDX-License-Identifier: Apache-2.0

// Numeric class amx with the instruction: tdpbf16ps, 16 times 16 sums of 32 products a step, and
// tdpbsud for int8 weights. int4 and fp8 weights are unpacked to panels of bf16 pairs, of which a
// tile of B is every second line. Compiled like kernels_avx512_bf16.cc.

#include <immintrin.h>

#include "ops/cpu/amx/attend_spans_amx.h"
#include "ops/cpu/amx/attention_amx.h"
#include "ops/cpu/amx/int8_amx.h"
#include "ops/cpu/amx/piece_product_amx.h"
#include "ops/cpu/amx/tile_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {

const Kernels& amx_kernels() {
    static const Kernels kTable = [] {
        Kernels table = avx512_bf16_kernels();
        table.shape = {
            .rows = kAmxRows, .row_panels = kAmxRows, .w4a8_rows = table.shape.w4a8_rows};
        table.tile = amx_tile<AmxTileUnit>;
        table.bf16_pieces = amx_pieces<AmxTileUnit, AddBf16{}>;
        table.int8_pieces = amx_pieces<AmxTileUnit, AddBytes{}>;
        table.int8_tile = amx_int8_tile<AmxTileUnit>;
        table.reads_key_pairs = false;
        table.begin_heads = begin_amx_heads;
        table.attend_block = attend_amx_block<AmxTileUnit>;
        table.attend_spans = attend_amx_spans<AmxTileUnit>;
        table.finish_heads = finish_amx_heads;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
