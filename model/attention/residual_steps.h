// SPDX-License-Identifier: Apache-2.0
#pragma once

// The steps on the residual stream that every kind of attention and every layer has, row by row
// over the threads of a Parallel.

#include <span>

#include "model/attention/residual.h"
#include "model/checkpoint/norm_tensors.h"
#include "ops/attention/rms_norm.h"
#include "ops/linear/linear.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"

namespace afd::model {

// y = the norm of x →bf16 (ops/attention/rms_norm.h, or layer_norm.h where there is a beta).
// Shapes: gamma, beta [x.num_cols].
void normalise(const ConstResidual& x,
               const NormView& norm,
               double epsilon,
               ops::Rows<ops::Bf16> y,
               ops::Parallel& parallel);

// The same with what the rounding of y leaves (SplitRows). REQUIRES: x.is_fp32().
void normalise(const ConstResidual& x,
               const NormView& norm,
               double epsilon,
               const ops::SplitRows& y,
               ops::Parallel& parallel);

// residual = (residual + delta) →bf16, or without rounding in fp32.
void add_residual(const Residual& residual,
                  ops::Rows<const ops::Bf16> delta,
                  ops::Parallel& parallel);

// add_residual() of (heads·o_projᵀ →bf16): the end of an attention block. `projected`
// [heads.num_rows, residual.num_cols()] takes the product. An int8 o_proj quantises the heads
// first, for which `workspace` has ops::quantised_input_bytes(heads.num_rows, heads.num_cols).
void add_projected_heads(const Residual& residual,
                         ops::Rows<const ops::Bf16> heads,
                         const ops::PackedLinear& o_proj,
                         ops::Rows<ops::Bf16> projected,
                         std::span<std::byte> workspace,
                         ops::Parallel& parallel);

}  // namespace afd::model
