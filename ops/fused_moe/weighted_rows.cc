// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/weighted_rows.h"

#include <algorithm>

namespace afd::ops {
namespace {

// Elements that one task multiplies: some microseconds of work.
constexpr size_t kElementsPerTask = size_t{1} << 16;

}  // namespace

void weight_rows(Rows<const Bf16> x, const float* weights, Rows<Bf16> out, Parallel& parallel) {
    const size_t num_rows = out.num_rows;
    const size_t rows_per_task = kElementsPerTask / std::max<size_t>(out.num_cols, 1) + 1;
    const auto multiply = [&](size_t task, unsigned) {
        const size_t last = std::min(num_rows, (task + 1) * rows_per_task);
        for (size_t row = task * rows_per_task; row < last; ++row) {
            const Bf16* from = x.row(row);
            Bf16* to = out.row(row);
            const float weight = weights[row];
            for (size_t c = 0; c < out.num_cols; ++c)
                to[c] = from_float(to_float(from[c]) * weight);
        }
    };
    const size_t num_tasks = (num_rows + rows_per_task - 1) / rows_per_task;
    if (num_tasks == 1) {
        multiply(0, 0);
    } else if (num_tasks > 1) {
        parallel.run(num_tasks, multiply);
    }
}

}  // namespace afd::ops
