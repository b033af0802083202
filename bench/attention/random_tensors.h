// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random values and weights for benchmarks, whose time does not depend on them. Every call gives
// others. One thread at a time.

#include <cstddef>
#include <vector>

#include "ops/format/numeric_class.h"
#include "ops/linear/linear.h"
#include "ops/tensor/bf16.h"

namespace afd::bench {

// Normal with a standard deviation of `scale`; a prime number of values, repeated: drawing many
// would take longer than the benchmark.
std::vector<ops::Bf16> random_values(size_t count, float scale);

// [outputs, depth] of random_values(1 / sqrt(depth)).
ops::PackedLinear random_linear(size_t outputs,
                                size_t depth,
                                ops::NumericClass numeric_class = ops::best_numeric_class());

}  // namespace afd::bench
