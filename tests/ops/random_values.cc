// SPDX-License-Identifier: Apache-2.0

#include "tests/ops/random_values.h"

#include <cmath>

namespace afd::ops::test {
namespace {

constexpr uint64_t kSteps = 1 << 16;  // Of each of the four.

}  // namespace

// The variance of n steps is (n * n - 1) / 12.
RandomValues::RandomValues(uint32_t seed, float deviation)
    : engine_(seed),
      factor_(deviation / std::sqrt(4 * static_cast<float>(kSteps * kSteps - 1) / 12)) {}

float RandomValues::next() {
    uint64_t bits = engine_();
    int64_t sum = -2 * static_cast<int64_t>(kSteps - 1);
    for (int i = 0; i < 4; ++i, bits /= kSteps) sum += static_cast<int64_t>(bits % kSteps);
    return static_cast<float>(sum) * factor_;
}

}  // namespace afd::ops::test
