// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/matrix.h"

namespace afd::ops::reference {

Matrix Matrix::columns(size_t first, size_t count) const {
    Matrix part(num_rows, count);
    for (size_t r = 0; r < num_rows; ++r) {
        for (size_t c = 0; c < count; ++c) part.at(r, c) = at(r, first + c);
    }
    return part;
}

Matrix widen(Rows<const Bf16> rows) {
    Matrix matrix(rows.num_rows, rows.num_cols);
    for (size_t r = 0; r < rows.num_rows; ++r) {
        for (size_t c = 0; c < rows.num_cols; ++c) {
            matrix.at(r, c) = static_cast<double>(to_float(rows.row(r)[c]));
        }
    }
    return matrix;
}

std::vector<Bf16> narrow(const Matrix& matrix) {
    std::vector<Bf16> values;
    values.reserve(matrix.values.size());
    for (const double value : matrix.values)
        values.push_back(from_float(static_cast<float>(value)));
    return values;
}

}  // namespace afd::ops::reference
