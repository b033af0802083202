// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/linear.h"

#include "proto/check.h"

namespace afd::ops::reference {

Matrix linear_f32(const Matrix& x, Rows<const Bf16> weight) {
    AFD_ASSERT(x.num_cols == weight.num_cols, "depth %zu and %zu", x.num_cols, weight.num_cols);
    Matrix y(x.num_rows, weight.num_rows);
    for (size_t i = 0; i < x.num_rows; ++i) {
        for (size_t n = 0; n < weight.num_rows; ++n) {
            double sum = 0;
            for (size_t k = 0; k < x.num_cols; ++k) {
                sum += x.at(i, k) * static_cast<double>(to_float(weight.row(n)[k]));
            }
            y.at(i, n) = sum;
        }
    }
    return y;
}

Matrix linear(const Matrix& x, Rows<const Bf16> weight, Rounding rounding) {
    Matrix y = linear_f32(x, weight);
    for (double& value : y.values) value = round_point(value, rounding);
    return y;
}

}  // namespace afd::ops::reference
