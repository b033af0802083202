// SPDX-License-Identifier: Apache-2.0
#pragma once

// Quantisation of rows to int8, as every operator that quantises does it.
//
// Dynamic, per row: v = float(x)·smooth; s = max|v| / 127; q = clamp(rint(v / s), -127, 127), half
// to even; the stored scale is s. s = 0 (a row of zeros, or underflow): q = 0. A row in which a v
// is NaN or infinite: s = NaN, q = 0.
// Static: q = clip(rint(float(x)·scale + offset), -128, 127), every operation rounded to fp32; a
// NaN gives 0.
//
// A row's bits depend on the row alone, and are the same with every processor.

#include <cstddef>
#include <cstdint>

#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// Writes q [count] and returns s. `smooth` [count] or null. REQUIRES: x is bf16, fp16 or fp32.
float quantise_row(DType dtype, const void* x, const float* smooth, size_t count, int8_t* q);

// Writes q [count]. REQUIRES: x is bf16, fp16 or fp32.
void quantise_row_static(
    DType dtype, const void* x, float scale, float offset, size_t count, int8_t* q);

struct QuantiseRequest {
    ConstTensorView x;              // [num_rows, H] bf16, fp16 or fp32, contiguous
    const float* smooth = nullptr;  // [H], the same for all rows; null: 1
    int8_t* q = nullptr;            // out [num_rows, H]
    float* scale = nullptr;         // out [num_rows]
};

// quantise_row of every row, cut over the threads.
void quantise_rows(const QuantiseRequest& request, Parallel& parallel);

}  // namespace afd::ops
