// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the threads of a pool reach together: the limits that figures are divided by. Medians of
// several runs of some 50 ms, of wall time; a first run is not counted.

#include "ops/tensor/parallel.h"

namespace afd::bench {

// Sequential read of memory that no cache holds, each thread its own part, in GB/s.
double read_gbytes_per_s(ops::Parallel& parallel);

// Multiply-adds of bf16 values in registers, in GFLOP/s (two a product): the fastest that the
// processor has (limit_loops.h), which is fp32 where it has none for bf16.
double bf16_gflops(ops::Parallel& parallel);

}  // namespace afd::bench
