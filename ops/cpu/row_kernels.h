// SPDX-License-Identifier: Apache-2.0
#pragma once

// Row-wise loops that every numeric class computes with the same bits; each kernel file compiles
// its own copy, vectorised for its instruction set. Included by ops/cpu/kernels_*.cc only.

#include <bit>
#include <cstddef>
#include <cstdint>

#include "ops/bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/latent_cache.h"
#include "ops/math.h"

namespace afd::ops::cpu {
namespace {

inline constexpr size_t kLanes = 16;

void round_row(const float* x, size_t count, Bf16* y) {
    for (size_t i = 0; i < count; ++i) y[i] = from_float(x[i]);
}

inline Bf16 swiglu(float gate, float up) {
    const float rounded_gate = to_float(from_float(gate));
    const float rounded_up = to_float(from_float(up));
    return from_float(silu(rounded_gate) * rounded_up);
}

void swiglu_row(const float* gate, const float* up, size_t count, Bf16* h) {
    if (count == kLanes) {
        // Nearly every call: half a panel, as straight vector code.
        for (size_t i = 0; i < kLanes; ++i) h[i] = swiglu(gate[i], up[i]);
        return;
    }
    for (size_t i = 0; i < count; ++i) h[i] = swiglu(gate[i], up[i]);
}

void scale_row(
    const int32_t* sums, float row_scale, const float* column_scale, size_t count, float* y) {
    for (size_t i = 0; i < count; ++i) {
        y[i] = static_cast<float>(sums[i]) * row_scale * column_scale[i];
    }
}

// ((v0+v8)+(v4+v12)) + ..., by halves.
inline float sum_lanes(const float* lanes) {
    float part[kLanes];
    for (size_t i = 0; i < kLanes; ++i) part[i] = lanes[i];
    for (size_t half = kLanes / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) part[i] = part[i] + part[i + half];
    }
    return part[0];
}

void softmax_step(
    float* scores, size_t num_positions, float* maximum, float* sum, float* alpha, Bf16* p) {
    const float minus_infinity = std::bit_cast<float>(0xff800000u);
    for (size_t i = num_positions; i < kAttentionBlock; ++i) scores[i] = minus_infinity;
    float largest[kLanes];
    for (size_t i = 0; i < kLanes; ++i) largest[i] = *maximum;
    for (size_t first = 0; first < kAttentionBlock; first += kLanes) {
        for (size_t i = 0; i < kLanes; ++i) {
            const float score = scores[first + i];
            largest[i] = score > largest[i] ? score : largest[i];
        }
    }
    float top = largest[0];
    for (size_t i = 1; i < kLanes; ++i) top = largest[i] > top ? largest[i] : top;

    float lanes[kLanes] = {};
    for (size_t first = 0; first < kAttentionBlock; first += kLanes) {
        for (size_t i = 0; i < kLanes; ++i) {
            const float value = exp(scores[first + i] - top);
            lanes[i] = lanes[i] + value;
            p[first + i] = from_float(value);
        }
    }
    *alpha = exp(*maximum - top);
    *sum = *sum * *alpha + sum_lanes(lanes);
    *maximum = top;
}

}  // namespace
}  // namespace afd::ops::cpu
