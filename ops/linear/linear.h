// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of rows and a packed matrix: y = x · Wᵀ.
//
// bf16, int4 and fp8 weights: y[i, n] = Σ_k x[i, k] · W[n, k], accumulated in fp32 in one order per
// output, as the numeric class says (ops/format/numeric_class.h). int8 weights: the exact int32 sum
// · row scale · column scale, in that order (ops/format/weight_format.h). int4 weights and int8
// rows: exact sums of groups (ops/format/int4_rows.h). So y[i, n] depends on row i of x, row n of W
// and the class, and on nothing else: not on the other rows, their number, or the threads.

#include <cstddef>
#include <span>

#include "ops/linear/linear_input.h"
#include "ops/linear/packed_linear.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// In all products: x must hold int8 rows if the weight is int8; x and y must not overlap.

// y →bf16. Shapes: x [num_rows, depth], y [num_rows, num_outputs].
void linear(const LinearInput& x, const PackedLinear& weight, Rows<Bf16> y, Parallel& parallel);

// The columns of panels [first_panel, last_panel) of it, on the calling thread.
void linear_panels(const LinearInput& x,
                   const PackedLinear& weight,
                   size_t first_panel,
                   size_t last_panel,
                   Rows<Bf16> y);

// Two products of the same rows at once, so that threads wait for each other once.
struct LinearOutput {
    const PackedLinear* weight;
    Rows<Bf16> y;
};
void linear_pair(const LinearInput& x,
                 const LinearOutput& first,
                 const LinearOutput& second,
                 Parallel& parallel);

// y in fp32 (router logits, head).
void linear_f32(const LinearInput& x,
                const PackedLinear& weight,
                Rows<float> y,
                Parallel& parallel);

// y = y + bias in fp32. Shapes: bias [y.num_cols].
void add_bias(std::span<const Bf16> bias, Rows<float> y, Parallel& parallel);

// y = (x · Wᵀ + bias) →bf16, the bias added to the sums in fp32. Shapes: bias [num_outputs], sums
// [num_rows, num_outputs], which is scratch.
void linear_biased(const LinearInput& x,
                   const PackedLinear& weight,
                   std::span<const Bf16> bias,
                   Rows<float> sums,
                   Rows<Bf16> y,
                   Parallel& parallel);

// h = (silu(gate) · up) →bf16, with gate and up each →bf16 first (docs/specification.md, section
// 10). Shapes: x [num_rows, depth], h [num_rows, num_outputs / 2]. REQUIRES: weight.is_gate_up().
void swiglu(const LinearInput& x, const PackedLinear& weight, Rows<Bf16> h, Parallel& parallel);

}  // namespace afd::ops
