// SPDX-License-Identifier: Apache-2.0
#pragma once

// The steps on the residual stream that every kind of attention and every layer has, row by row
// over the threads of a Parallel.

#include <span>

#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"

namespace afd::model {

// y = rms_norm(x)·gamma →bf16 (ops/attention/rms_norm.h). Shape: gamma [x.num_cols].
void normalise(ops::Rows<const ops::Bf16> x,
               std::span<const ops::Bf16> gamma,
               double epsilon,
               ops::Rows<ops::Bf16> y,
               ops::Parallel& parallel);

// residual = (residual + delta) →bf16.
void add_residual(ops::Rows<ops::Bf16> residual,
                  ops::Rows<const ops::Bf16> delta,
                  ops::Parallel& parallel);

}  // namespace afd::model
