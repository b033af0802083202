// SPDX-License-Identifier: Apache-2.0

// Numeric class portable: fp32 multiply, then add, for every processor.

#include <cstring>

#include "ops/cpu/activation_kernels.h"
#include "ops/cpu/attend_rows.h"
#include "ops/cpu/expand_key_pairs.h"
#include "ops/cpu/expand_rows.h"
#include "ops/cpu/fp8_kernels.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/quantise_kernels.h"
#include "ops/cpu/residual_row.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/softmax_row.h"
#include "ops/cpu/tile_rows.h"
#include "ops/cpu/w4a8_rows.h"
#include "ops/cpu/weight_kernels.h"

namespace afd::ops::cpu {
namespace {

template <size_t kRows>
void tile_rows(const TileArguments& a, size_t first_row, const uint16_t* panel, float* out) {
    const size_t out_stride = a.num_panels * kPanelColumns;
    float sums[kRows][kPanelColumns] = {};
    for (size_t r = 0; a.goes_on && r < kRows; ++r) {
        for (size_t j = 0; j < kPanelColumns; ++j)
            sums[r][j] = out[(first_row + r) * out_stride + j];
    }
    for (size_t k = 0; k < a.depth; ++k) {
        float weights[kPanelColumns];
        for (size_t j = 0; j < kPanelColumns; ++j)
            weights[j] = to_float(Bf16{panel[k * kPanelColumns + j]});
        for (size_t r = 0; r < kRows; ++r) {
            const float x = to_float(a.x[(first_row + r) * a.x_stride + k]);
            // Product rounded, then sum: the class is defined so, and -ffp-contract=off holds the
            // compiler to it.
            for (size_t j = 0; j < kPanelColumns; ++j) sums[r][j] = sums[r][j] + x * weights[j];
        }
    }
    for (size_t r = 0; r < kRows; ++r) {
        for (size_t j = 0; j < kPanelColumns; ++j)
            out[(first_row + r) * out_stride + j] = sums[r][j];
    }
}

void tile(const TileArguments& a) {
    for (size_t p = 0; p < a.num_panels; ++p) {
        const uint16_t* panel = a.panel + p * a.panel_elements;
        float* out = a.out + p * kPanelColumns;
        size_t row = 0;
        for (; row + 2 <= a.num_rows; row += 2) tile_rows<2>(a, row, panel, out);
        if (row < a.num_rows) tile_rows<1>(a, row, panel, out);
    }
}

void int8_tile(const Int8TileArguments& a) {
    const auto* values = reinterpret_cast<const uint8_t*>(a.panel);
    for (size_t r = 0; r < a.num_rows; ++r) {
        int32_t sums[kPanelColumns] = {};
        for (size_t k = 0; k < a.depth; ++k) {
            const int32_t x = a.x[r * a.x_stride + k];
            const uint8_t* weights = values + k / 4 * 4 * kPanelColumns + k % 4;
            // Weights are stored plus 128 for the instruction that multiplies unsigned by signed
            // bytes (avx512-bf16). All classes read the same panels.
            for (size_t j = 0; j < kPanelColumns; ++j) sums[j] += x * (weights[4 * j] - 128);
        }
        std::memcpy(a.out + r * kPanelColumns, sums, sizeof sums);
    }
}

// Adds the products of `count` elements to 16 partial sums, element i to partial i mod 16.
void dot_lanes(const Bf16* x, const Bf16* y, size_t count, float* lanes) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (size_t j = 0; j < kLanes; ++j) {
            lanes[j] = lanes[j] + to_float(x[i + j]) * to_float(y[i + j]);
        }
    }
    for (size_t j = 0; i + j < count; ++j) {
        lanes[j] = lanes[j] + to_float(x[i + j]) * to_float(y[i + j]);
    }
}

void scores(const HeadsState& s, const AttendBlock& b) {
    for (size_t position = 0; position < b.num_positions; ++position) {
        for (size_t head = b.first_head; head < b.end_of_heads(s); ++head) {
            float lanes[kLanes] = {};
            dot_lanes(query_row(s, head), b.ckv + position * s.latent, s.latent, lanes);
            dot_lanes(query_rope_row(s, head), b.kr + position * s.rope, s.rope, lanes);
            s.scores[head * kAttentionBlock + position] = sum_lanes(lanes) * b.scale;
        }
    }
}

void accumulate(const HeadsState& s, const AttendBlock& b) {
    for (size_t head = b.first_head; head < b.end_of_heads(s); ++head) {
        float* o = s.o + head * s.o_stride;
        for (size_t c = 0; c < s.latent; ++c) o[c] = o[c] * s.alpha[head];
        for (size_t position = 0; position < b.num_positions; ++position) {
            const float p = to_float(s.p[head * kAttentionBlock + position]);
            const Bf16* row = b.summed() + position * s.latent;
            for (size_t c = 0; c < s.latent; ++c) o[c] = o[c] + p * to_float(row[c]);
        }
    }
}

struct MultiplyThenAdd {
    float operator()(float a, float b, float sum) const { return sum + a * b; }
};

}  // namespace

const Kernels& portable_kernels() {
    static constexpr Kernels kTable = {
        .shape = {.rows = 12, .row_panels = 8, .int4_rows = 0, .fp8_rows = 0, .w4a8_rows = 12},
        .tile = tile,
        .sum_int8 = sum_int8,
        .int8_tile = int8_tile,
        .int4_tile = nullptr,
        .w4a8_tile = w4a8_tile,
        .arrange_w4a8 = arrange_w4a8,
        .unpack_int4 = unpack_int4<1>,
        .unpack_mxfp4 = unpack_mxfp4<1>,
        .fp8_tile = nullptr,
        .unpack_fp8 = unpack_fp8<1>,
        .add_block = add_block<MultiplyThenAdd>,
        .scale_row = scale_row,
        .exp_row = exp_row,
        .round_row = round_row,
        .scale_tile = scale_tile,
        .round_tile = round_tile,
        .swiglu_tile = swiglu_tile,
        .swiglu_row = swiglu_row,
        .softmax_step = softmax_step,
        .begin_heads = begin_heads,
        .attend_block = attend_block<scores, accumulate>,
        .finish_heads = finish_heads,
        .quantise_bf16 = quantise_rows<Bf16>,
        .quantise_fp16 = quantise_rows<Fp16>,
        .quantise_fp32 = quantise_rows<float>,
        .activate_rows = kActivateRows,
        .residual = kResidualKernels,
        .encode_fp8 = encode_fp8_row,
        .expand_fp8 = expand_rows_plain<E4m3Values>,
        .expand_int8 = expand_rows_plain<Int8Values>,
        .expand_fp8_pairs = expand_key_pairs_plain<E4m3Values>,
        .expand_int8_pairs = expand_key_pairs_plain<Int8Values>,
        .expand_int8_channels = expand_int8_channels_row,
    };
    return kTable;
}

}  // namespace afd::ops::cpu
