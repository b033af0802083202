// SPDX-License-Identifier: Apache-2.0
#pragma once

// The sum of squares of ops/attention/rms_norm.h: 16 partial sums, then by halves. In an unnamed
// namespace, because every file that includes it may be compiled for instructions of its own.

#include <cstddef>

#include "ops/tensor/bf16.h"

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
    constexpr size_t kSums = 16;
    float sums[kSums] = {};
    size_t i = 0;
    for (; i + kSums <= count; i += kSums) {
        for (size_t j = 0; j < kSums; ++j) {
            const float value = widen(x[i + j]);
            sums[j] = sums[j] + value * value;
        }
    }
    for (size_t j = 0; i + j < count; ++j) {
        const float value = widen(x[i + j]);
        sums[j] = sums[j] + value * value;
    }
    for (size_t half = kSums / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; ++j) sums[j] = sums[j] + sums[j + half];
    }
    return sums[0];
}

}  // namespace
}  // namespace afd::ops::cpu
