// SPDX-License-Identifier: Apache-2.0
#pragma once

// The sum of squares of ops/attention/rms_norm.h: 16 partial sums, then by halves. In an unnamed
// namespace, because every file that includes it may be compiled for instructions of its own.

#include <cstddef>

#include "ops/tensor/bf16.h"
#include "ops/tensor/lanes.h"

namespace afd::ops::cpu {
namespace {

inline float widen(Bf16 value) {
    return to_float(value);
}

inline float widen(float value) {
    return value;
}

template <typename T>
float sum_of_squares(const T* x, size_t count) {
    float sums[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (size_t j = 0; j < kLanes; ++j) {
            const float value = widen(x[i + j]);
            sums[j] = sums[j] + value * value;
        }
    }
    for (size_t j = 0; i + j < count; ++j) {
        const float value = widen(x[i + j]);
        sums[j] = sums[j] + value * value;
    }
    return sum_lanes(sums);
}

}  // namespace
}  // namespace afd::ops::cpu
