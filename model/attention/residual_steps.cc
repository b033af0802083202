// SPDX-License-Identifier: Apache-2.0
#include "model/attention/residual_steps.h"

#include "ops/attention/rms_norm.h"
#include "ops/tensor/row_tasks.h"

namespace afd::model {

using ops::Bf16;
using ops::Rows;

void normalise(Rows<const Bf16> x,
               std::span<const Bf16> gamma,
               double epsilon,
               Rows<Bf16> y,
               ops::Parallel& parallel) {
    // On all threads, also for few rows: with norms, sums and routing of 32 rows on one thread a
    // layer lost 270 us of 2.6 ms, now 33 (2 cores, 405 M parameters, int8).
    ops::for_rows(parallel, x.num_rows, x.num_cols, [&](size_t first, size_t last, unsigned) {
        ops::rms_norm(x.slice(first, last - first),
                      gamma.data(),
                      static_cast<float>(epsilon),
                      y.slice(first, last - first));
    });
}

void add_residual(Rows<Bf16> residual, Rows<const Bf16> delta, ops::Parallel& parallel) {
    const auto add = [&](size_t first, size_t last, unsigned) {
        ops::residual_add(delta.slice(first, last - first), residual.slice(first, last - first));
    };
    ops::for_rows(parallel, residual.num_rows, residual.num_cols, add);
}

}  // namespace afd::model
