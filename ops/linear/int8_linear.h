// SPDX-License-Identifier: Apache-2.0
#pragma once

// PackedInt8Linear: an int8 weight matrix with one scale a column, and y = x · W of int8 rows.
//
// y[i, n] = float(Σ_k x[i, k] · W[k, n]) · row_scale[i] · column_scale[n], the products in that
// order. The sum is an exact int32, so every numeric class gives the same bits.

#include <cstddef>
#include <cstdint>

#include "ops/format/int8_rows.h"
#include "ops/linear/linear.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

class PackedInt8Linear {
  public:
    // An absent matrix: empty() holds.
    PackedInt8Linear() = default;

    // Copies a matrix given as [depth, num_outputs].
    // REQUIRES: both at least 1, depth at most kInt8DepthMax.
    static PackedInt8Linear pack_transposed(Rows<const int8_t> weight);

    bool empty() const { return packed_.empty(); }
    size_t num_outputs() const { return packed_.num_outputs(); }
    size_t depth() const { return packed_.depth(); }

    // The matrix with column scales of 1.
    const PackedLinear& packed() const { return packed_; }

  private:
    PackedLinear packed_;
};

// Shapes: column_scale [num_outputs], y [num_rows, num_outputs]; y must not overlap x.
void int8_linear(const Int8Rows& x,
                 const PackedInt8Linear& weight,
                 const float* column_scale,
                 Rows<float> y,
                 Parallel& parallel);

// y →bf16.
void int8_linear(const Int8Rows& x,
                 const PackedInt8Linear& weight,
                 const float* column_scale,
                 Rows<Bf16> y,
                 Parallel& parallel);

}  // namespace afd::ops
