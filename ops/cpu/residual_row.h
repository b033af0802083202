// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows of the residual stream between the matrices, as plain loops with the same bits in every
// numeric class; the compiler vectorises them. Included by kernels_*.cc only.

#include <cstddef>

#include "ops/cpu/kernels.h"
#include "ops/cpu/layer_norm_row.h"
#include "ops/cpu/sum_of_squares.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

void divide_row(const Bf16* x, float root, const Bf16* gamma, size_t count, Bf16* y) {
    for (size_t i = 0; i < count; ++i) {
        const float normalised = to_float(from_float(to_float(x[i]) / root));
        y[i] = from_float(normalised * to_float(gamma[i]));
    }
}

void divide_row_scaled(
    const Bf16* x, float root, const Bf16* gamma, float scale, size_t count, Bf16* y) {
    for (size_t i = 0; i < count; ++i) {
        y[i] = from_float(to_float(x[i]) / root * to_float(gamma[i]) * scale);
    }
}

void add_row(const Bf16* delta, size_t count, Bf16* sum) {
    for (size_t i = 0; i < count; ++i) sum[i] = from_float(to_float(sum[i]) + to_float(delta[i]));
}

void add_weighted_row(const Bf16* row, float weight, size_t count, float* sums) {
    for (size_t i = 0; i < count; ++i) sums[i] = sums[i] + weight * to_float(row[i]);
}

void store_sums(const float* sums, size_t count, Bf16* y) {
    for (size_t i = 0; i < count; ++i) y[i] = from_float(sums[i]);
}

void divide_row_f32(
    const float* x, float root, const Bf16* gamma, size_t count, Bf16* y, NormRest rest) {
    if (rest.middle == nullptr) {
        for (size_t i = 0; i < count; ++i) y[i] = from_float(x[i] / root * to_float(gamma[i]));
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        const float value = x[i] / root * to_float(gamma[i]);
        y[i] = from_float(value);
        // Exact, as both differences are.
        const float left = value - to_float(y[i]);
        rest.middle[i] = from_float(left);
        rest.low[i] = from_float(left - to_float(rest.middle[i]));
    }
}

void add_row_f32(const Bf16* delta, size_t count, float* sum) {
    for (size_t i = 0; i < count; ++i) sum[i] = sum[i] + to_float(delta[i]);
}

constexpr ResidualKernels kResidualKernels{sum_of_squares<Bf16>,
                                           divide_row,
                                           divide_row_scaled,
                                           add_row,
                                           add_weighted_row,
                                           store_sums,
                                           sum_of_squares<float>,
                                           divide_row_f32,
                                           add_row_f32,
                                           moments<Bf16>,
                                           layer_norm_row,
                                           moments<float>,
                                           layer_norm_row_f32};

}  // namespace
}  // namespace afd::ops::cpu
