// SPDX-License-Identifier: Apache-2.0
#pragma once

// What this machine can do at most, as far as a fifth of a second tells: what the time of a call is
// set against. bench/ measures the same in more ways, and longer.

#include "ops/format/numeric_class.h"
#include "ops/tensor/parallel.h"

namespace afd::calls {

struct MachineLimits {
    // Read and written by copies between two buffers that no cache holds.
    double bytes_per_second;
    // Multiplications and additions of products of bf16 matrices that lie in the cache.
    double operations_per_second;
};

MachineLimits machine_limits(ops::NumericClass numeric_class, ops::Parallel& parallel);

}  // namespace afd::calls
