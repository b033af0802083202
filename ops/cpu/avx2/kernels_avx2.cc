// SPDX-License-Identifier: Apache-2.0

// Numeric class avx2: fp32 fused multiply-add on 8 lanes. Compiled with -mavx2 -mfma.

#include <immintrin.h>

#include "ops/cpu/activation_kernels.h"
#include "ops/cpu/attend_rows.h"
#include "ops/cpu/avx2/int8_avx2.h"
#include "ops/cpu/avx2/tile_avx2.h"
#include "ops/cpu/avx2/words_avx2.h"
#include "ops/cpu/fp8_fma.h"
#include "ops/cpu/fp8_kernels.h"
#include "ops/cpu/int8_row.h"
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

inline __m256 load_bf16(const void* source) {
    const __m128i half = _mm_loadu_si128(static_cast<const __m128i*>(source));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

inline __m256 broadcast(Bf16 value) {
    return _mm256_set1_ps(to_float(value));
}

struct Lanes {
    __m256 low = _mm256_setzero_ps();
    __m256 high = _mm256_setzero_ps();
};

// The last, incomplete group is padded with zeros, which add nothing to a sum.
void dot_lanes(const Bf16* x, const Bf16* y, size_t count, Lanes& lanes) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        lanes.low = _mm256_fmadd_ps(load_bf16(x + i), load_bf16(y + i), lanes.low);
        lanes.high = _mm256_fmadd_ps(load_bf16(x + i + 8), load_bf16(y + i + 8), lanes.high);
    }
    if (i == count) return;
    Bf16 x_tail[kLanes] = {};
    Bf16 y_tail[kLanes] = {};
    for (size_t j = 0; i + j < count; ++j) {
        x_tail[j] = x[i + j];
        y_tail[j] = y[i + j];
    }
    lanes.low = _mm256_fmadd_ps(load_bf16(x_tail), load_bf16(y_tail), lanes.low);
    lanes.high = _mm256_fmadd_ps(load_bf16(x_tail + 8), load_bf16(y_tail + 8), lanes.high);
}

void scores(const HeadsState& s, const AttendBlock& b) {
    for (size_t position = 0; position < b.num_positions; ++position) {
        for (size_t head = b.first_head; head < b.end_of_heads(s); ++head) {
            Lanes lanes;
            dot_lanes(query_row(s, head), b.ckv + position * s.latent, s.latent, lanes);
            dot_lanes(query_rope_row(s, head), b.kr + position * s.rope, s.rope, lanes);
            float parts[kLanes];
            _mm256_storeu_ps(parts, lanes.low);
            _mm256_storeu_ps(parts + 8, lanes.high);
            s.scores[head * kAttentionBlock + position] = sum_lanes(parts) * b.scale;
        }
    }
}

void accumulate(const HeadsState& s, const AttendBlock& b) {
    for (size_t head = b.first_head; head < b.end_of_heads(s); ++head) {
        float* o = s.o + head * s.o_stride;
        const Bf16* values = b.summed();
        const Bf16* p = s.p + head * kAttentionBlock;
        const __m256 alpha = _mm256_set1_ps(s.alpha[head]);
        size_t c = 0;
        for (; c + 8 <= s.latent; c += 8) {
            __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(o + c), alpha);
            for (size_t position = 0; position < b.num_positions; ++position) {
                const __m256 value = load_bf16(values + position * s.latent + c);
                sum = _mm256_fmadd_ps(broadcast(p[position]), value, sum);
            }
            _mm256_storeu_ps(o + c, sum);
        }
        // One fused operation here as well: a product rounded apart would give the last columns
        // other bits than the lanes give theirs.
        for (; c < s.latent; ++c) {
            float sum = o[c] * s.alpha[head];
            for (size_t position = 0; position < b.num_positions; ++position) {
                const __m128 weight = _mm_set_ss(to_float(p[position]));
                const __m128 value = _mm_set_ss(to_float(values[position * s.latent + c]));
                sum = _mm_cvtss_f32(_mm_fmadd_ss(weight, value, _mm_set_ss(sum)));
            }
            o[c] = sum;
        }
    }
}

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
        table.shape.fp8_rows = EightWords::kFp8Rows;
        table.shape.fp8_product_rows = 4;
        table.fp8_tile = fp8_tile_fma<EightWords>;
        table.attend_block = attend_block<scores, accumulate>;
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
        table.begin_heads = begin_heads;
        table.finish_heads = finish_heads;
        table.quantise_bf16 = quantise_rows<Bf16>;
        table.quantise_fp16 = quantise_rows<Fp16>;
        table.quantise_fp32 = quantise_rows<float>;
        table.activate_rows = kActivateRows;
        table.residual = kResidualKernels;
        table.encode_fp8 = encode_fp8_row;
        table.expand_fp8 = expand_fp8_row;
        table.expand_int8 = expand_int8_row;
        table.expand_int8_channels = expand_int8_channels_row;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
