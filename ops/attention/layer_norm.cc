// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/layer_norm.h"

#include <cmath>

#include "ops/attention/norm_rows.h"
#include "ops/cpu/kernels.h"

namespace afd::ops {
namespace {

cpu::LayerNormRow norm_of(const cpu::RowMoments& moments,
                          const Bf16* gamma,
                          const Bf16* beta,
                          float epsilon) {
    return {.mean = moments.mean,
            .root = std::sqrt(moments.variance + epsilon),
            .gamma = gamma,
            .beta = beta};
}

}  // namespace

void layer_norm(
    Rows<const Bf16> x, const Bf16* gamma, const Bf16* beta, float epsilon, Rows<Bf16> y) {
    check_same_shape(x, y);
    const cpu::ResidualKernels& kernels = residual_kernels();
    for (size_t t = 0; t < x.num_rows; ++t) {
        const cpu::RowMoments moments = kernels.moments(x.row(t), x.num_cols);
        kernels.layer_norm_row(
            x.row(t), norm_of(moments, gamma, beta, epsilon), x.num_cols, y.row(t));
    }
}

void layer_norm(
    Rows<const float> x, const Bf16* gamma, const Bf16* beta, float epsilon, const SplitRows& y) {
    check_same_shape(x, y.high);
    const cpu::ResidualKernels& kernels = residual_kernels();
    const bool has_rest = y.middle.data != nullptr;
    for (size_t t = 0; t < x.num_rows; ++t) {
        const cpu::RowMoments moments = kernels.moments_f32(x.row(t), x.num_cols);
        cpu::NormRest rest;
        if (has_rest) rest = {.middle = y.middle.row(t), .low = y.low.row(t)};
        kernels.layer_norm_row_f32(
            x.row(t), norm_of(moments, gamma, beta, epsilon), x.num_cols, y.high.row(t), rest);
    }
}

}  // namespace afd::ops
