// SPDX-License-Identifier: Apache-2.0

// Numeric class amx with the instruction: tdpbf16ps, 16 times 16 sums of 32 products a step, and
// tdpbsud for int8 weights. int4, mxfp4 and fp8 weights are unpacked to bf16 pairs, of whose lines
// a tile of B is every second one. Few rows are the vector unit's. Compiled like
// kernels_avx512_bf16.cc.

#include "ops/cpu/amx/attention_kernels_amx.h"
#include "ops/cpu/amx/few_rows_amx.h"
#include "ops/cpu/amx/product_kernels_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {

const Kernels& amx_kernels() {
    static const Kernels kTable = [] {
        Kernels table = avx512_bf16_kernels();
        set_product_kernels<AmxTileUnit, avx512_bf16_kernels>(table);
        set_few_row_kernels<AmxTileUnit, avx512_bf16_kernels>(table);
        set_attention_kernels<AmxTileUnit>(table);
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
