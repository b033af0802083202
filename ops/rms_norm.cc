// SPDX-License-Identifier: Apache-2.0

#include "ops/rms_norm.h"

#include <cmath>

#include "proto/check.h"

namespace afd::ops {
namespace {

constexpr size_t kLanes = 16;

float widen(Bf16 value) {
    return to_float(value);
}

float widen(float value) {
    return value;
}

void store(float value, Bf16& y) {
    y = from_float(value);
}

void store(float value, float& y) {
    y = value;
}

template <typename T>
float sum_of_squares(const T* x, size_t count) {
    float lanes[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (size_t j = 0; j < kLanes; ++j) {
            const float value = widen(x[i + j]);
            lanes[j] = lanes[j] + value * value;
        }
    }
    for (size_t j = 0; i + j < count; ++j) {
        const float value = widen(x[i + j]);
        lanes[j] = lanes[j] + value * value;
    }
    for (size_t half = kLanes / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; ++j) lanes[j] = lanes[j] + lanes[j + half];
    }
    return lanes[0];
}

template <typename T>
float root_mean_square(const T* x, size_t count, float epsilon) {
    return std::sqrt(sum_of_squares(x, count) / static_cast<float>(count) + epsilon);
}

template <typename In, typename Out>
void check_shapes(Rows<const In> x, Rows<Out> y) {
    AFD_ASSERT(x.num_rows == y.num_rows && x.num_cols == y.num_cols,
               "x [%zu, %zu], y [%zu, %zu]",
               x.num_rows,
               x.num_cols,
               y.num_rows,
               y.num_cols);
}

template <typename In, typename Out>
void scale_rows(Rows<const In> x, const Bf16* gamma, float epsilon, float scale, Rows<Out> y) {
    check_shapes(x, y);
    for (size_t t = 0; t < x.num_rows; ++t) {
        const In* in = x.row(t);
        Out* out = y.row(t);
        const float root = root_mean_square(in, x.num_cols, epsilon);
        for (size_t i = 0; i < x.num_cols; ++i) {
            store(widen(in[i]) / root * to_float(gamma[i]) * scale, out[i]);
        }
    }
}

}  // namespace

void rms_norm(Rows<const Bf16> x, const Bf16* gamma, float epsilon, Rows<Bf16> y) {
    check_shapes(x, y);
    for (size_t t = 0; t < x.num_rows; ++t) {
        const Bf16* in = x.row(t);
        Bf16* out = y.row(t);
        const float root = root_mean_square(in, x.num_cols, epsilon);
        for (size_t i = 0; i < x.num_cols; ++i) {
            const float normalised = to_float(from_float(to_float(in[i]) / root));
            out[i] = from_float(normalised * to_float(gamma[i]));
        }
    }
}

void rms_norm_scaled(
    Rows<const Bf16> x, const Bf16* gamma, float epsilon, float scale, Rows<Bf16> y) {
    scale_rows(x, gamma, epsilon, scale, y);
}

void rms_norm_scaled(
    Rows<const Bf16> x, const Bf16* gamma, float epsilon, float scale, Rows<float> y) {
    scale_rows(x, gamma, epsilon, scale, y);
}

void rms_norm_scaled(
    Rows<const float> x, const Bf16* gamma, float epsilon, float scale, Rows<float> y) {
    scale_rows(x, gamma, epsilon, scale, y);
}

void residual_add(Rows<const Bf16> delta, Rows<Bf16> residual) {
    check_shapes(delta, residual);
    for (size_t t = 0; t < delta.num_rows; ++t) {
        const Bf16* in = delta.row(t);
        Bf16* out = residual.row(t);
        for (size_t i = 0; i < delta.num_cols; ++i) {
            out[i] = from_float(to_float(out[i]) + to_float(in[i]));
        }
    }
}

}  // namespace afd::ops
