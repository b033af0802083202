// SPDX-License-Identifier: Apache-2.0

// Numeric class avx512-bf16: vdpbf16ps, 32 products a step; vpdpbusd for int8 weights. Compiled
// with -mavx512f ... -mavx512bf16.
//
// The loops over rows are those of avx512: GCC makes the same code of them for either class.

#include <immintrin.h>

#include "ops/cpu/attention_avx512_bf16.h"
#include "ops/cpu/fp8_avx512_bf16.h"
#include "ops/cpu/fp8_kernels.h"
#include "ops/cpu/int4_avx512_bf16.h"
#include "ops/cpu/int8_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/quantise_avx512_bf16.h"
#include "ops/cpu/tile_avx512_bf16.h"

namespace afd::ops::cpu {

const Kernels& avx512_bf16_kernels() {
    static const Kernels kTable = [] {
        Kernels table = avx512_kernels();
        table.shape.int4_rows = kInt4TileRows;
        table.shape.fp8_rows = kFp8TileRows;
        table.tile = tile;
        table.sum_int8 = sum_int8;
        table.int8_tile = int8_tile;
        table.int4_tile = int4_tile;
        table.fp8_tile = fp8_tile;
        table.unpack_fp8 = unpack_fp8_pairs;
        table.begin_heads = begin_heads;
        table.attend_block = attend_block;
        table.finish_heads = finish_heads;
        table.quantise_bf16 = quantise_rows<Bf16, MultiplyByFixedPoint>;
        table.quantise_fp16 = quantise_rows<Fp16, MultiplyByFixedPoint>;
        table.quantise_fp32 = quantise_rows<float, MultiplyByFixedPoint>;
        // The loops of portable, vectorised for these instructions.
        table.encode_fp8 = encode_fp8_row;
        table.expand_fp8 = expand_fp8_row;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
