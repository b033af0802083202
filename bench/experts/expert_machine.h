// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertMachine: the threads on which bench_experts runs, and what they reach at this moment.

#include <cstdint>
#include <memory>

#include "bench/limits/limit_steps.h"
#include "ops/format/weight_format.h"
#include "ops/tensor/parallel.h"
#include "threads/thread_pool.h"

namespace afd::bench {

class ExpertMachine {
  public:
    // The caller and, with two, a helper, on cores 0 and 1. REQUIRES: num_threads is 1 or 2.
    ops::Parallel& parallel(unsigned num_threads);

    // One step of the limits (bench/limits/limit_steps.h), a second: bytes, and operations of the
    // multiply-add instruction with which our kernels compute a format.
    double read_rate(ops::Parallel& parallel);
    double peak_rate(ops::WeightFormat format, ops::Parallel& parallel);

    // flag_round_trip_ns() between the cores; 0 with one thread.
    double round_trip_ns(unsigned num_threads);

    // Returns when threads that look for work, ours and the peer's, have gone to sleep: they would
    // take the core from whoever is measured next.
    static void wait_for_sleepers();

  private:
    ReadStep read_{size_t{1} << 29};
    ops::SerialParallel serial_;
    std::unique_ptr<threads::ThreadPool> pool_;
};

}  // namespace afd::bench
