// SPDX-License-Identifier: Apache-2.0

// Numeric class avx2: fp32 fused multiply-add on 8 lanes. Compiled with -mavx2 -mfma.

#include "ops/cpu/activation_kernels.h"
#include "ops/cpu/attend_float_block.h"
#include "ops/cpu/attend_rows.h"
#include "ops/cpu/avx2/attention_avx2.h"
#include "ops/cpu/avx2/int8_avx2.h"
#include "ops/cpu/avx2/quantised_pairs_avx2.h"
#include "ops/cpu/avx2/tile_avx2.h"
#include "ops/cpu/avx2/w4a8_avx2.h"
#include "ops/cpu/avx2/words_avx2.h"
#include "ops/cpu/expand_key_pairs.h"
#include "ops/cpu/expand_rows.h"
#include "ops/cpu/fp8_fma.h"
#include "ops/cpu/fp8_kernels.h"
#include "ops/cpu/int4_fma.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/quantise_kernels.h"
#include "ops/cpu/residual_row.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/softmax_row.h"
#include "ops/cpu/tile_rows.h"
#include "ops/cpu/unpack_words.h"
#include "ops/cpu/weight_kernels.h"

namespace afd::ops::cpu {
namespace {

struct FusedMultiplyAdd {
    float operator()(float a, float b, float sum) const { return __builtin_fmaf(a, b, sum); }
};

}  // namespace

const Kernels& avx2_kernels() {
    static const Kernels kTable = [] {
        Kernels table = portable_kernels();
        table.shape.rows = kTileRows;
        table.tile = tile;
        table.int8_tile = int8_madd_tile;
        table.shape.int4_rows = EightWords::kNibbleRows;
        table.shape.int4_product_rows = EightWords::kNibbleRows;
        table.shape.int4_zero_product_rows = EightWords::kNibbleRows;
        table.int4_tile = int4_tile_fma<EightWords>;
        table.shape.w4a8_rows = kW4a8TileRows;
        table.w4a8_tile = w4a8_tile_avx2;
        table.arrange_w4a8 = arrange_w4a8_avx2;
        table.shape.fp8_rows = EightWords::kFp8Rows;
        table.shape.fp8_product_rows = 4;
        table.fp8_tile = fp8_tile_fma<EightWords>;
        table.key_pair_heads = kNearHeads + 1;
        table.attend_block = attend_float_block<AttendAvx2>;
        table.attend_quantised = attend_quantised;
        table.quantised_heads_max = kQuantisedHeadsMax;
        // The loops of portable, vectorised for these instructions.
        table.sum_int8 = sum_int8;
        table.unpack_int4 = unpack_nibble_words<EightWords, 1, Nibble::kInt4>;
        table.unpack_mxfp4 = unpack_nibble_words<EightWords, 1, Nibble::kE2m1>;
        table.unpack_fp8 = unpack_fp8_words<EightWords, 1>;
        table.add_block = add_block<FusedMultiplyAdd>;
        table.scale_row = scale_row;
        table.exp_row = exp_row;
        table.round_row = round_row;
        table.scale_tile = scale_tile;
        table.round_tile = round_tile;
        table.swiglu_tile = swiglu_tile;
        table.swiglu_row = swiglu_row;
        table.softmax_step = softmax_step;
        table.begin_heads = begin_float_heads<AttendAvx2>;
        table.finish_heads = AttendAvx2::finish;
        table.quantise_bf16 = quantise_rows<Bf16>;
        table.quantise_fp16 = quantise_rows<Fp16>;
        table.quantise_fp32 = quantise_rows<float>;
        table.activate_rows = kActivateRows;
        table.residual = kResidualKernels;
        table.encode_fp8 = encode_fp8_row;
        table.expand_fp8 = expand_rows<EightWords, E4m3Values>;
        table.expand_int8 = expand_rows<EightWords, Int8Values>;
        table.expand_fp8_pairs = expand_key_pairs<EightWords, E4m3Values>;
        table.expand_int8_pairs = expand_key_pairs<EightWords, Int8Values>;
        table.expand_int8_channels = expand_int8_channels_row;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
