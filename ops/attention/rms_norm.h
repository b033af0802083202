// SPDX-License-Identifier: Apache-2.0
#pragma once

// RMS normalisation and the residual add, the two row-wise steps between blocks.
//
// The sum of squares runs in a fixed order: 16 partial sums (element i to partial i mod 16), then
// halves added pairwise. The same bits in every numeric class.

#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// y = ((x / sqrt(mean(x²) + epsilon)) →bf16 · gamma) →bf16, the decoder's norm.
// Shapes: x, y [num_tokens, hidden]; gamma [hidden]. y may be x.
void rms_norm(Rows<const Bf16> x, const Bf16* gamma, float epsilon, Rows<Bf16> y);

// y = (x / sqrt(mean(x²) + epsilon) · gamma · scale) →bf16: the norm inside MLA, rounded once.
void rms_norm_scaled(
    Rows<const Bf16> x, const Bf16* gamma, float epsilon, float scale, Rows<Bf16> y);

// The same before its rounding, from bf16 or unrounded rows (quantised MLA).
void rms_norm_scaled(
    Rows<const Bf16> x, const Bf16* gamma, float epsilon, float scale, Rows<float> y);
void rms_norm_scaled(
    Rows<const float> x, const Bf16* gamma, float epsilon, float scale, Rows<float> y);

// The same of rows in fp32, rounded once: y = (x / sqrt(mean(x²) + epsilon) · gamma) →bf16.
void rms_norm(Rows<const float> x, const Bf16* gamma, float epsilon, Rows<Bf16> y);

// With what the rounding leaves: y + middle + low is the fp32 value, unless a part is subnormal.
struct SplitRows {
    Rows<Bf16> high;
    Rows<Bf16> middle;
    Rows<Bf16> low;
};
void rms_norm(Rows<const float> x, const Bf16* gamma, float epsilon, const SplitRows& y);

// residual = residual + delta, in fp32.
void residual_add(Rows<const Bf16> delta, Rows<float> residual);

// residual = (residual + delta) →bf16, one fp32 sum per element.
void residual_add(Rows<const Bf16> delta, Rows<Bf16> residual);

}  // namespace afd::ops
