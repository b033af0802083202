// SPDX-License-Identifier: Apache-2.0
#pragma once

// kLanes: how many partial sums a reduction over a row keeps, and the order in which they meet.
//
// Element i goes to partial sum i mod kLanes. So a sum has one order in every numeric class, and a
// register of any width up to sixteen floats can compute it. Always inlined, for the reason given
// in ops/tensor/bf16.h.

#include <cstddef>

namespace afd::ops {

inline constexpr size_t kLanes = 16;

// ((v0+v8)+(v4+v12)) + ..., by halves. Destroys what `lanes` holds.
[[gnu::always_inline]] inline float sum_lanes(float (&lanes)[kLanes]) {
    for (size_t half = kLanes / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
    }
    return lanes[0];
}

}  // namespace afd::ops
