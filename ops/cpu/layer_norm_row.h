// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows of a LayerNorm, as plain loops with the same bits in every numeric class. Part of
// ops/cpu/residual_row.h.

#include <cstddef>

#include "ops/cpu/kernels.h"
#include "ops/cpu/sum_of_squares.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/lanes.h"

namespace afd::ops::cpu {
namespace {

// In the order of sum_of_squares().
template <typename T, typename Term>
float sum_of_terms(const T* x, size_t count, const Term& term) {
    float sums[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (size_t j = 0; j < kLanes; ++j) sums[j] = sums[j] + term(widen(x[i + j]));
    }
    for (size_t j = 0; i + j < count; ++j) sums[j] = sums[j] + term(widen(x[i + j]));
    return sum_lanes(sums);
}

// Two passes: the difference of the mean square and the squared mean would cancel where a row is
// far from zero.
template <typename T>
RowMoments moments(const T* x, size_t count) {
    const float mean =
        sum_of_terms(x, count, [](float value) { return value; }) / static_cast<float>(count);
    const float squares = sum_of_terms(x, count, [mean](float value) {
        const float away = value - mean;
        return away * away;
    });
    return {.mean = mean, .variance = squares / static_cast<float>(count)};
}

void layer_norm_row(const Bf16* x, const LayerNormRow& norm, size_t count, Bf16* y) {
    const LayerNormRow n = norm;
    for (size_t i = 0; i < count; ++i) {
        y[i] = from_float((to_float(x[i]) - n.mean) / n.root * to_float(n.gamma[i]) +
                          to_float(n.beta[i]));
    }
}

void layer_norm_row_f32(
    const float* x, const LayerNormRow& norm, size_t count, Bf16* y, NormRest rest) {
    const LayerNormRow n = norm;
    for (size_t i = 0; i < count; ++i) {
        const float value = (x[i] - n.mean) / n.root * to_float(n.gamma[i]) + to_float(n.beta[i]);
        y[i] = from_float(value);
        if (rest.middle == nullptr) continue;
        // Exact, as both differences are.
        const float left = value - to_float(y[i]);
        rest.middle[i] = from_float(left);
        rest.low[i] = from_float(left - to_float(rest.middle[i]));
    }
}

}  // namespace
}  // namespace afd::ops::cpu
