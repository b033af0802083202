// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/layer_norm.h"

#include <cmath>

#include "proto/check.h"

namespace afd::ops::reference {

Matrix layer_norm(const Matrix& x,
                  std::span<const Bf16> gamma,
                  std::span<const Bf16> beta,
                  double epsilon,
                  Rounding rounding) {
    AFD_ASSERT(gamma.size() == x.num_cols && beta.size() == x.num_cols,
               "gamma of %zu, beta of %zu for %zu",
               gamma.size(),
               beta.size(),
               x.num_cols);
    Matrix y(x.num_rows, x.num_cols);
    const auto count = static_cast<double>(x.num_cols);
    for (size_t t = 0; t < x.num_rows; ++t) {
        double sum = 0;
        for (size_t i = 0; i < x.num_cols; ++i) sum += x.at(t, i);
        double squares = 0;
        for (size_t i = 0; i < x.num_cols; ++i) squares += std::pow(x.at(t, i) - sum / count, 2);
        const double root = std::sqrt(squares / count + epsilon);
        for (size_t i = 0; i < x.num_cols; ++i) {
            const double scaled =
                (x.at(t, i) - sum / count) / root * static_cast<double>(to_float(gamma[i]));
            y.at(t, i) = round_point(scaled + static_cast<double>(to_float(beta[i])), rounding);
        }
    }
    return y;
}

}  // namespace afd::ops::reference
