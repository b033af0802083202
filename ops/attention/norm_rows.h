// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the steps between blocks, row by row, have in common: rms_norm.h and layer_norm.h. Internal
// to ops/.

#include "ops/cpu/kernels.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/tensor_view.h"
#include "proto/check.h"

namespace afd::ops {

// Every class has the same bits here.
inline const cpu::ResidualKernels& residual_kernels() {
    return cpu::best_kernels().residual;
}

// Asserts that rows in and out are of one shape.
template <typename In, typename Out>
void check_same_shape(Rows<const In> x, Rows<Out> y) {
    AFD_ASSERT(x.num_rows == y.num_rows && x.num_cols == y.num_cols,
               "x [%zu, %zu], y [%zu, %zu]",
               x.num_rows,
               x.num_cols,
               y.num_rows,
               y.num_cols);
}

}  // namespace afd::ops
