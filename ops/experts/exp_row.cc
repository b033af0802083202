// SPDX-License-Identifier: Apache-2.0
#include "ops/experts/exp_row.h"

#include "ops/cpu/kernels.h"
#include "proto/check.h"

namespace afd::ops {

void exp_row(std::span<const float> x, float maximum, float temperature, std::span<float> y) {
    AFD_ASSERT(x.size() == y.size(), "%zu values, room for %zu", x.size(), y.size());
    cpu::best_kernels().exp_row(x.data(), maximum, temperature, x.size(), y.data());
}

}  // namespace afd::ops
