// SPDX-License-Identifier: Apache-2.0
#pragma once

// Row-wise loops that every numeric class computes with the same bits; each kernel file compiles
// its own copy, vectorised for its instruction set. Included by kernels_*.cc only.

#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/lanes.h"
#include "ops/tensor/math.h"

namespace afd::ops::cpu {
namespace {

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

void exp_row(const float* x, float maximum, float temperature, size_t count, float* y) {
    for (size_t i = 0; i < count; ++i) y[i] = exp((x[i] - maximum) / temperature);
}

void scale_row(
    const int32_t* sums, float row_scale, const float* column_scale, size_t count, float* y) {
    for (size_t i = 0; i < count; ++i) {
        y[i] = static_cast<float>(sums[i]) * row_scale * column_scale[i];
    }
}

// scale_row for rows of one panel; its width is known here, which saves most of the work.
void scale_tile(const int32_t* sums,
                const float* row_scale,
                const float* column_scale,
                size_t count,
                float* y) {
    for (size_t r = 0; r < count; ++r, sums += kPanelColumns, y += kPanelColumns) {
        for (size_t i = 0; i < kPanelColumns; ++i) {
            y[i] = static_cast<float>(sums[i]) * row_scale[r] * column_scale[i];
        }
    }
}

}  // namespace
}  // namespace afd::ops::cpu
