// SPDX-License-Identifier: Apache-2.0

// Numeric class avx512-bf16: vdpbf16ps, 32 products a step. Compiled with -mavx512f ...
// -mavx512bf16.

#include <immintrin.h>

#include "ops/cpu/activation_kernels.h"
#include "ops/cpu/attention_avx512.h"
#include "ops/cpu/fp8_kernels.h"
#include "ops/cpu/int4_avx512.h"
#include "ops/cpu/int8_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/quantise_avx512.h"
#include "ops/cpu/residual_row.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/softmax_row.h"
#include "ops/cpu/swiglu_avx512.h"
#include "ops/cpu/tile_avx512.h"

namespace afd::ops::cpu {

const Kernels& avx512_bf16_kernels() {
    static constexpr Kernels kTable{tile,
                                    sum_int8,
                                    int8_tile,
                                    int4_tile,
                                    nullptr,
                                    scale_row,
                                    exp_row,
                                    round_row,
                                    scale_tile,
                                    round_tile_avx512,
                                    swiglu_tile_avx512,
                                    swiglu_row_avx512,
                                    softmax_step,
                                    begin_heads,
                                    attend_block,
                                    finish_heads,
                                    quantise_rows<Bf16, MultiplyByFixedPoint>,
                                    quantise_rows<Fp16, MultiplyByFixedPoint>,
                                    quantise_rows<float, MultiplyByFixedPoint>,
                                    activate_rows_with(swiglu_row_avx512),
                                    kResidualKernels,
                                    encode_fp8_row,
                                    expand_fp8_row};
    return kTable;
}

}  // namespace afd::ops::cpu
