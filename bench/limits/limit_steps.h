// SPDX-License-Identifier: Apache-2.0
#pragma once

// Limits of this machine in small steps, so that a benchmark can run them between its own samples:
// neighbours on a shared host move the limits from second to second, and only figures taken side by
// side can be divided by one another.

#include <cstddef>
#include <span>

#include "bench/limits/limit_loops.h"
#include "ops/tensor/parallel.h"

namespace afd::bench {

// Memory in huge pages where the kernel gives them, `least` bytes and more than caches hold. Every
// call reads the next piece on all threads and returns its bytes.
class ReadStep {
  public:
    explicit ReadStep(size_t least);
    ~ReadStep();
    ReadStep(const ReadStep&) = delete;
    ReadStep& operator=(const ReadStep&) = delete;

    double run(ops::Parallel& parallel);

  private:
    std::span<std::byte> memory_;
    size_t next_ = 0;
};

// Multiply-adds in registers on every thread, with the instructions that limit_loops.h names for
// this processor; returns the operations (two a product), 0 without a loop for it.
double bf16_step(ops::Parallel& parallel, const LimitLoops& loops = limit_loops());
double int8_step(ops::Parallel& parallel);

}  // namespace afd::bench
