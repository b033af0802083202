// SPDX-License-Identifier: Apache-2.0
#pragma once

// Weighted rows: the experts' input with the routing weights on it (apply_router_weight_on_input),
// for models that were trained so. Only with top_k 1, where a token has one weight.
//
//   out[t][c] = bf16(float(x[t][c]) · weights[t])    one product in fp32, rounded once, half to
//   even
//
// That is before the row is quantised or leaves; the experts see nothing else of the weight, and
// the sum over the slots takes their rows with weight 1. Another numeric class than a weight on the
// output, since the experts are not linear; rows of shared experts carry none.

#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// Shapes: x, out [num_tokens, hidden], not the same memory; weights [num_tokens].
// A weight that is NaN makes its whole row NaN.
void weight_rows(Rows<const Bf16> x, const float* weights, Rows<Bf16> out, Parallel& parallel);

}  // namespace afd::ops
