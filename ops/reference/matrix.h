// SPDX-License-Identifier: Apache-2.0
#pragma once

// Matrix and Rounding: what the reference operators compute on.
//
// ops/reference is the specification: plain loops over doubles, one file per operator, no vector
// code, no packing, no threads. With Rounding::kBf16 every rounding point of the decoder's numerics
// is applied (the values are then bf16 numbers held in doubles; sums stay in double, the exact
// value that an fp32 chain approximates). With Rounding::kNone nothing is rounded.

#include <cstddef>
#include <vector>

#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops::reference {

enum class Rounding { kBf16, kNone };

// A rounding point.
inline double round_point(double value, Rounding rounding) {
    if (rounding == Rounding::kNone) return value;
    return static_cast<double>(to_float(from_float(static_cast<float>(value))));
}

struct Matrix {
    size_t num_rows = 0;
    size_t num_cols = 0;
    std::vector<double> values;

    Matrix() = default;
    Matrix(size_t rows, size_t cols) : num_rows(rows), num_cols(cols), values(rows * cols) {}

    double& at(size_t row, size_t col) { return values[row * num_cols + col]; }
    double at(size_t row, size_t col) const { return values[row * num_cols + col]; }
    const double* row(size_t index) const { return &values[index * num_cols]; }

    // Columns [first, first + count).
    Matrix columns(size_t first, size_t count) const;
};

Matrix widen(Rows<const Bf16> rows);

// Every value →bf16.
std::vector<Bf16> narrow(const Matrix& matrix);

}  // namespace afd::ops::reference
