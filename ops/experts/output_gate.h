// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gate behind an expert: one factor a row, sigmoid(x · gate), for the row of its result.
// Internal to ops/experts/. The sum has 16 partial sums (element i goes to partial i mod 16), added
// by halves; products are rounded. The same bits in every class.

#include <cstddef>
#include <cstdint>

#include "ops/tensor/bf16.h"

namespace afd::ops {

float output_gate(const Bf16* x, const float* gate, size_t count);

// Of a quantised row, whose x_i is q_i · scale, divided by smooth_i where `smooth` is given: the
// sum is of q_i (divided), and the scale multiplies it.
float output_gate(
    const int8_t* q, float scale, const float* smooth, const float* gate, size_t count);

// y = (y · factor) →bf16.
void multiply_row(float factor, size_t count, Bf16* y);

}  // namespace afd::ops
