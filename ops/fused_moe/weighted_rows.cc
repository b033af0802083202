// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/weighted_rows.h"

#include "ops/tensor/row_tasks.h"

namespace afd::ops {

void weight_rows(Rows<const Bf16> x, const float* weights, Rows<Bf16> out, Parallel& parallel) {
    const auto multiply = [&](size_t first, size_t last, unsigned) {
        for (size_t row = first; row < last; ++row) {
            const Bf16* from = x.row(row);
            Bf16* to = out.row(row);
            // One product, rounded once to bf16: the specification's only rounding point of a
            // weight on the input. A weight of 1 changes no bit.
            const float weight = weights[row];
            for (size_t c = 0; c < out.num_cols; ++c)
                to[c] = from_float(to_float(from[c]) * weight);
        }
    };
    for_rows(parallel, out.num_rows, out.num_cols, multiply);
}

}  // namespace afd::ops
