// SPDX-License-Identifier: Apache-2.0

// Numeric class avx512-bf16: vdpbf16ps, 32 products a step. Compiled with -mavx512f ...
// -mavx512bf16.
//
// Products with int8 weights and the loops over rows are those of avx512 with VNNI: GCC makes the
// same code of them for either class.

#include <immintrin.h>

#include "ops/cpu/avx512_bf16/attention_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/fp8_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/int4_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/int4_groups_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/quantised_pairs_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/rounded_words_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/tile_avx512_bf16.h"
#include "ops/cpu/expand_key_pairs.h"
#include "ops/cpu/expand_rows.h"
#include "ops/cpu/fp8_kernels.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {

const Kernels& avx512_bf16_kernels() {
    static const Kernels kTable = [] {
        Kernels table = avx512_vnni_kernels();
        table.shape.int4_rows = kInt4TileRows;
        table.shape.int4_product_rows = TileShape::kAllRows;
        table.shape.int4_zero_product_rows = kInt4ZeroRows;
        table.shape.fp8_rows = kFp8TileRows;
        table.shape.fp8_product_rows = TileShape::kAllRows;
        table.tile = tile;
        table.int4_tile = int4_tile;
        table.unpack_int4 = unpack_int4_pairs;
        table.unpack_mxfp4 = unpack_mxfp4_pairs;
        table.unpack_groups = unpack_groups;
        table.group_tile = group_tile;
        table.fp8_tile = fp8_tile;
        table.unpack_fp8 = unpack_fp8_pairs;
        table.key_pair_heads = 1;
        table.begin_heads = begin_heads;
        table.attend_block = attend_block;
        table.attend_quantised = attend_quantised;
        table.quantised_heads_max = kQuantisedHeadsMax;
        table.finish_heads = finish_heads;
        table.expand_fp8 = expand_rows<RoundedWords, E4m3Values>;
        table.expand_int8 = expand_rows<RoundedWords, Int8Values>;
        table.expand_fp8_pairs = expand_key_pairs<RoundedWords, E4m3Values>;
        table.expand_int8_pairs = expand_key_pairs<RoundedWords, Int8Values>;
        // The loop of portable, vectorised for these instructions.
        table.encode_fp8 = encode_fp8_row;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
