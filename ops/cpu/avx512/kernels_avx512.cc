// SPDX-License-Identifier: Apache-2.0

// Numeric class avx512: the arithmetic of avx2 on 16 lanes, for processors without vdpbf16ps.
// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq.

#include <immintrin.h>

#include "ops/cpu/activation_kernels.h"
#include "ops/cpu/attend_float_block.h"
#include "ops/cpu/avx512/attention_avx512.h"
#include "ops/cpu/avx512/quantise_avx512.h"
#include "ops/cpu/avx512/swiglu_avx512.h"
#include "ops/cpu/avx512/tile_avx512.h"
#include "ops/cpu/avx512/unpack_int4_avx512.h"
#include "ops/cpu/avx512/words_avx512.h"
#include "ops/cpu/expand_key_pairs.h"
#include "ops/cpu/expand_rows.h"
#include "ops/cpu/fp8_fma.h"
#include "ops/cpu/fp8_kernels.h"
#include "ops/cpu/int4_fma.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/residual_row.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/softmax_row.h"
#include "ops/cpu/unpack_words.h"

namespace afd::ops::cpu {
const Kernels& avx512_kernels() {
    static const Kernels kTable = [] {
        Kernels table = avx2_kernels();
        table.shape.rows = kAvx512TileRows;
        table.tile = tile;
        table.shape.int4_rows = SixteenWords::kNibbleRows;
        table.shape.int4_product_rows = SixteenWords::kNibbleRows;
        table.shape.int4_zero_product_rows = SixteenWords::kNibbleRows;
        table.int4_tile = int4_tile_fma<SixteenWords>;
        table.shape.fp8_rows = SixteenWords::kFp8Rows;
        table.shape.fp8_product_rows = 8;
        table.unpack_int4 = unpack_int4_avx512;
        table.unpack_mxfp4 = unpack_nibble_words<SixteenWords, 1, Nibble::kE2m1>;
        table.unpack_fp8 = unpack_fp8_words<SixteenWords, 1>;
        table.fp8_tile = fp8_tile_fma<SixteenWords>;
        table.round_tile = round_tile_avx512;
        table.swiglu_tile = swiglu_tile_avx512;
        table.swiglu_row = swiglu_row_avx512;
        table.activate_rows = activate_rows_with(swiglu_row_avx512);
        // The loops of portable, vectorised for these instructions.
        table.scale_row = scale_row;
        table.exp_row = exp_row;
        table.round_row = round_row;
        table.scale_tile = scale_tile;
        table.softmax_step = softmax_step;
        table.residual = kResidualKernels;
        table.begin_heads = begin_float_heads<AttendAvx512>;
        table.key_pair_heads = kNearHeads + 1;
        table.attend_block = attend_float_block<AttendAvx512>;
        table.attend_quantised = nullptr;
        table.quantised_heads_max = {};
        table.finish_heads = finish_heads;
        table.quantise_bf16 = quantise_rows<Bf16, MultiplyByFixedPoint>;
        table.quantise_fp16 = quantise_rows<Fp16, MultiplyByFixedPoint>;
        table.quantise_fp32 = quantise_rows<float, MultiplyByFixedPoint>;
        table.encode_fp8 = encode_fp8_row;
        table.expand_fp8 = expand_rows<SixteenWords, E4m3Values>;
        table.expand_int8 = expand_rows<SixteenWords, Int8Values>;
        table.expand_fp8_pairs = expand_key_pairs<SixteenWords, E4m3Values>;
        table.expand_int8_pairs = expand_key_pairs<SixteenWords, Int8Values>;
        table.expand_int8_channels = expand_int8_channels_row;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
