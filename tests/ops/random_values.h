// SPDX-License-Identifier: Apache-2.0
#pragma once

// RandomValues: seeded floats for inputs, roughly normal. The inputs of the tests are so large that
// std::normal_distribution, with its logarithms, was two thirds of what the tests of attention ran.

#include <cstdint>
#include <random>

namespace afd::ops::test {

class RandomValues {
  public:
    RandomValues(uint32_t seed, float deviation);

    // A sum of four uniform ones: around 0, with the given deviation, and within 3.47 of it.
    float next();

  private:
    std::mt19937_64 engine_;
    float factor_;
};

}  // namespace afd::ops::test
