// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerNorm, which takes the mean of a row away and adds a bias, unlike RMSNorm:
//
//   mean = Σ x / n,  variance = Σ (x − mean)² / n
//   y = ((x − mean) / sqrt(variance + epsilon) · gamma + beta) →bf16
//
// in fp32, every operation rounded on its own, to bf16 once. Both sums run in the order of
// ops/attention/rms_norm.h. The same bits in every numeric class.

#include "ops/attention/rms_norm.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// Shapes: x, y [num_tokens, hidden]; gamma, beta [hidden]. y may be x.
void layer_norm(
    Rows<const Bf16> x, const Bf16* gamma, const Bf16* beta, float epsilon, Rows<Bf16> y);

// Of rows in fp32; without middle and low rows only the first part is written.
void layer_norm(
    Rows<const float> x, const Bf16* gamma, const Bf16* beta, float epsilon, const SplitRows& y);

}  // namespace afd::ops
