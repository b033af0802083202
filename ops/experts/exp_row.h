// SPDX-License-Identifier: Apache-2.0
#pragma once

// exp_row: weights of a row of logits, as a softmax or a sampler needs them.

#include <span>

namespace afd::ops {

// y[i] = exp((x[i] - maximum) / temperature), rounded after each operation; exp of
// ops/tensor/math.h. The same bits in every numeric class. temperature > 0. REQUIRES: x.size() ==
// y.size().
void exp_row(std::span<const float> x, float maximum, float temperature, std::span<float> y);

}  // namespace afd::ops
