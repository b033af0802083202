// SPDX-License-Identifier: Apache-2.0
#pragma once

// A product of two bf16 numbers that is added to an fp32 sum, and what becomes of subnormals in it
// (docs/specification.md, section 10).

#include <cmath>

namespace afd::ops::reference {

enum class Subnormals {
    kKept,
    // Operands and sums below 2^-126 are zero, as where takes_subnormals_as_zero() says so.
    kZero,
};

inline float multiply_add(float sum, float a, float b, Subnormals subnormals) {
    const auto seen = [&](float value) {
        return subnormals == Subnormals::kZero && std::fabs(value) < 0x1p-126f ? 0.0f : value;
    };
    const float product = seen(a) * seen(b);
    return seen(sum + product);
}

}  // namespace afd::ops::reference
