// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/rms_norm.h"

#include <cmath>

#include "proto/check.h"

namespace afd::ops::reference {
namespace {

double root_mean_square(const Matrix& x, size_t row, double epsilon) {
    double sum = 0;
    for (size_t i = 0; i < x.num_cols; ++i) sum += x.at(row, i) * x.at(row, i);
    return std::sqrt(sum / static_cast<double>(x.num_cols) + epsilon);
}

double widen(Bf16 value) {
    return static_cast<double>(to_float(value));
}

}  // namespace

Matrix rms_norm(const Matrix& x, std::span<const Bf16> gamma, double epsilon, Rounding rounding) {
    AFD_ASSERT(gamma.size() == x.num_cols, "gamma of %zu for %zu", gamma.size(), x.num_cols);
    Matrix y(x.num_rows, x.num_cols);
    for (size_t t = 0; t < x.num_rows; ++t) {
        const double root = root_mean_square(x, t, epsilon);
        for (size_t i = 0; i < x.num_cols; ++i) {
            const double normalised = round_point(x.at(t, i) / root, rounding);
            y.at(t, i) = round_point(normalised * widen(gamma[i]), rounding);
        }
    }
    return y;
}

Matrix rms_norm_scaled(
    const Matrix& x, std::span<const Bf16> gamma, double epsilon, double scale, Rounding rounding) {
    AFD_ASSERT(gamma.size() == x.num_cols, "gamma of %zu for %zu", gamma.size(), x.num_cols);
    Matrix y(x.num_rows, x.num_cols);
    for (size_t t = 0; t < x.num_rows; ++t) {
        const double root = root_mean_square(x, t, epsilon);
        for (size_t i = 0; i < x.num_cols; ++i) {
            y.at(t, i) = round_point(x.at(t, i) / root * widen(gamma[i]) * scale, rounding);
        }
    }
    return y;
}

Matrix add(const Matrix& a, const Matrix& b, Rounding rounding) {
    AFD_ASSERT(a.values.size() == b.values.size(), "%zu and %zu", a.values.size(), b.values.size());
    Matrix sum = a;
    for (size_t i = 0; i < sum.values.size(); ++i) {
        sum.values[i] = round_point(a.values[i] + b.values[i], rounding);
    }
    return sum;
}

}  // namespace afd::ops::reference
