// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/rms_norm.h"

#include <cmath>

#include "ops/attention/norm_rows.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/sum_of_squares.h"

namespace afd::ops {
namespace {

float root_of(float squares, size_t count, float epsilon) {
    return std::sqrt(squares / static_cast<float>(count) + epsilon);
}

template <typename In>
void scale_rows(Rows<const In> x, const Bf16* gamma, float epsilon, float scale, Rows<float> y) {
    check_same_shape(x, y);
    for (size_t t = 0; t < x.num_rows; ++t) {
        const In* in = x.row(t);
        float* out = y.row(t);
        const float root = root_of(cpu::sum_of_squares(in, x.num_cols), x.num_cols, epsilon);
        for (size_t i = 0; i < x.num_cols; ++i) {
            // Left to right, each step rounded to fp32 (the specification, section 11). A product
            // with the reciprocal would be faster and give other bits.
            out[i] = cpu::widen(in[i]) / root * to_float(gamma[i]) * scale;
        }
    }
}

}  // namespace

void rms_norm(Rows<const Bf16> x, const Bf16* gamma, float epsilon, Rows<Bf16> y) {
    check_same_shape(x, y);
    const cpu::ResidualKernels& kernels = residual_kernels();
    for (size_t t = 0; t < x.num_rows; ++t) {
        const float squares = kernels.sum_of_squares(x.row(t), x.num_cols);
        kernels.divide_row(
            x.row(t), root_of(squares, x.num_cols, epsilon), gamma, x.num_cols, y.row(t));
    }
}

void rms_norm_scaled(
    Rows<const Bf16> x, const Bf16* gamma, float epsilon, float scale, Rows<Bf16> y) {
    check_same_shape(x, y);
    const cpu::ResidualKernels& kernels = residual_kernels();
    for (size_t t = 0; t < x.num_rows; ++t) {
        const float squares = kernels.sum_of_squares(x.row(t), x.num_cols);
        kernels.divide_row_scaled(
            x.row(t), root_of(squares, x.num_cols, epsilon), gamma, scale, x.num_cols, y.row(t));
    }
}

void rms_norm_scaled(
    Rows<const Bf16> x, const Bf16* gamma, float epsilon, float scale, Rows<float> y) {
    scale_rows(x, gamma, epsilon, scale, y);
}

void rms_norm_scaled(
    Rows<const float> x, const Bf16* gamma, float epsilon, float scale, Rows<float> y) {
    scale_rows(x, gamma, epsilon, scale, y);
}

void rms_norm(Rows<const float> x, const Bf16* gamma, float epsilon, Rows<Bf16> y) {
    rms_norm(x, gamma, epsilon, SplitRows{.high = y, .middle = {}, .low = {}});
}

void rms_norm(Rows<const float> x, const Bf16* gamma, float epsilon, const SplitRows& y) {
    check_same_shape(x, y.high);
    const cpu::ResidualKernels& kernels = residual_kernels();
    const bool has_rest = y.middle.data != nullptr;
    for (size_t t = 0; t < x.num_rows; ++t) {
        const float squares = kernels.sum_of_squares_f32(x.row(t), x.num_cols);
        cpu::NormRest rest;
        if (has_rest) rest = {.middle = y.middle.row(t), .low = y.low.row(t)};
        kernels.divide_row_f32(x.row(t),
                               root_of(squares, x.num_cols, epsilon),
                               gamma,
                               x.num_cols,
                               y.high.row(t),
                               rest);
    }
}

void residual_add(Rows<const Bf16> delta, Rows<float> residual) {
    check_same_shape(delta, residual);
    const cpu::ResidualKernels& kernels = residual_kernels();
    for (size_t t = 0; t < delta.num_rows; ++t) {
        kernels.add_row_f32(delta.row(t), delta.num_cols, residual.row(t));
    }
}

void residual_add(Rows<const Bf16> delta, Rows<Bf16> residual) {
    check_same_shape(delta, residual);
    const cpu::ResidualKernels& kernels = residual_kernels();
    for (size_t t = 0; t < delta.num_rows; ++t) {
        kernels.add_row(delta.row(t), delta.num_cols, residual.row(t));
    }
}

}  // namespace afd::ops
