// SPDX-License-Identifier: Apache-2.0
#pragma once

// WithAmxKernels: class amx is computed by another of its tables while it lives.

#include "ops/cpu/kernels.h"

namespace afd::ops::test {

// REQUIRES: no product runs while one is made or goes.
class WithAmxKernels {
  public:
    explicit WithAmxKernels(const cpu::Kernels& kernels)
        : before_(cpu::exchange_amx_kernels(kernels)) {}
    ~WithAmxKernels() { cpu::exchange_amx_kernels(before_); }
    WithAmxKernels(const WithAmxKernels&) = delete;
    WithAmxKernels& operator=(const WithAmxKernels&) = delete;

  private:
    const cpu::Kernels& before_;
};

}  // namespace afd::ops::test
