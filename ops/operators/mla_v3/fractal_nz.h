// SPDX-License-Identifier: Apache-2.0
#pragma once

// FRACTAL_NZ: the storage of weight matrices that the seeds' operators take, and converters.
//
// A matrix [rows, cols] is cut into fractals of 16 rows x 32 bytes (c0 = 32 / element size
// columns), each row-major. The fractals of one column block follow each other from top to bottom,
// the column blocks from left to right; the edges are padded with zeros. As a tensor it has the
// shape [ceil(cols / c0), ceil(rows / 16), 16, c0]. Source: the seed's "format 29".

#include <array>
#include <cstddef>

#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

inline constexpr size_t kFractalRows = 16;
inline constexpr size_t kFractalRowBytes = 32;

// c0: columns of one fractal.
constexpr size_t fractal_columns(DType dtype) {
    return kFractalRowBytes / size_of(dtype);
}

constexpr size_t fractal_count(size_t size, size_t by) {
    return size / by + (size % by != 0 ? 1 : 0);
}

// Where element (row, col) of a matrix of `num_rows` rows lies, in elements.
constexpr size_t fractal_nz_offset(size_t row, size_t col, size_t num_rows, size_t c0) {
    const size_t fractal = col / c0 * fractal_count(num_rows, kFractalRows) + row / kFractalRows;
    return (fractal * kFractalRows + row % kFractalRows) * c0 + col % c0;
}

// The shape of the tensor that stores a matrix [rows, cols].
constexpr std::array<size_t, 4> fractal_nz_shape(size_t rows, size_t cols, DType dtype) {
    const size_t c0 = fractal_columns(dtype);
    return {fractal_count(cols, c0), fractal_count(rows, kFractalRows), kFractalRows, c0};
}

// Shapes: nd [rows, cols], nz fractal_nz_shape(rows, cols), both contiguous, of one dtype; they
// must not overlap. to_fractal_nz writes the padding; from_fractal_nz does not read it.
// Errors: kInvalidArgument names the tensor, its shape or dtype, and the one wanted; then nothing
// was written.
Result<> to_fractal_nz(const ConstTensorView& nd, const TensorView& nz);
Result<> from_fractal_nz(const ConstTensorView& nz, const TensorView& nd);

}  // namespace afd::ops
