// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the cores of this machine reach together: the limits that the whole system is held against.
// All figures are of wall time, with one thread pinned to each of the first `num_threads` cores
// that the process may use.

namespace afd::bench {

// Sequential read of 512 MiB in huge pages, each thread its own part again and again, in GB/s;
// the median of several runs.
double read_gbytes_per_s(unsigned num_threads);

// Multiply-adds of bf16 pairs in registers, in GFLOP/s; the median of several runs. 0 without
// vdpbf16ps.
double bf16_gflops(unsigned num_threads);

// Nanoseconds in which a flag goes from the first core to the second and back; 0 with one core.
// Virtual cores move: about 50 ns are two threads of one core, which halves what they compute
// together, 130 ns two cores with a common cache, 500 ns two without.
double flag_round_trip_ns();

}  // namespace afd::bench
