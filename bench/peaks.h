// SPDX-License-Identifier: Apache-2.0
#pragma once

// Measured limits of the core that runs the benchmark: what a kernel's figure is divided by.

namespace afd::bench {

// Multiply-adds of bf16 pairs without any memory access, in GFLOP/s (2 per product); the fp32 FMA
// rate on processors without vdpbf16ps, 0 without either.
double peak_gflops();

// Sequential read of 256 MiB by one thread, in GB/s.
double read_gbytes_per_s();

}  // namespace afd::bench
