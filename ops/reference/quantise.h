// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference quantisation of one row (ops/linear/quantise.h states the formulas).

#include <cstddef>
#include <cstdint>

#include "ops/tensor/tensor_view.h"

namespace afd::ops::reference {

// Element `index` of a bf16, fp16 or fp32 array.
float element(DType dtype, const void* data, size_t index);

// The same of a tensor without gaps, also of an int8 one.
float float_at(const ConstTensorView& view, size_t index);

// A value →bf16.
float rounded(float value);

// Stores a value, rounded once, as element `index` of a bf16, fp16 or fp32 array.
void set_element(DType dtype, void* data, size_t index, float value);

float quantise_row(DType dtype, const void* x, const float* smooth, size_t count, int8_t* q);

void quantise_row_static(
    DType dtype, const void* x, float scale, float offset, size_t count, int8_t* q);

}  // namespace afd::ops::reference
