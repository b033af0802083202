// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/fractal_nz.h"

#include <cstring>
#include <string>

#include "ops/record/operator_check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

template <typename... Values>
Error refuse(Text<Values...> text, const With<Values...>& values = {}) {
    return invalid_argument("fractal_nz: {}", with(fmt::vformat(text, values)));
}

Result<> check(const ConstTensorView& nd, const ConstTensorView& nz) {
    if (nd.rank != 2) {
        return refuse("nd has shape {}; it must be [rows, cols]", with(shape_text(nd)));
    }
    if (nz.dtype != nd.dtype) {
        return refuse("nz has dtype {}; nd has {}", with(name_of(nz.dtype), name_of(nd.dtype)));
    }
    const auto wanted = fractal_nz_shape(nd.shape[0], nd.shape[1], nd.dtype);
    if (nz.rank != 4 || nz.shape != wanted) {
        return refuse("nz has shape {}; for nd {} it must be {}",
                      with(shape_text(nz), shape_text(nd), shape_text(wanted)));
    }
    if (!nd.is_contiguous()) return refuse("nd is not contiguous; copy it first");
    if (!nz.is_contiguous()) return refuse("nz is not contiguous; copy it first");
    return {};
}

// Calls piece(nd byte offset, nz byte offset, bytes) for every row of every fractal, as far as it
// lies inside the matrix.
template <typename Piece>
void for_each_piece(size_t num_rows, size_t num_cols, DType dtype, const Piece& piece) {
    const size_t element = size_of(dtype);
    const size_t c0 = fractal_columns(dtype);
    for (size_t col = 0; col < num_cols; col += c0) {
        const size_t count = col + c0 <= num_cols ? c0 : num_cols - col;
        for (size_t row = 0; row < num_rows; ++row) {
            piece((row * num_cols + col) * element,
                  fractal_nz_offset(row, col, num_rows, c0) * element,
                  count * element);
        }
    }
}

}  // namespace

Result<> to_fractal_nz(const ConstTensorView& nd, const TensorView& nz) {
    AFD_TRY(check(nd, nz));
    const auto* from = static_cast<const std::byte*>(nd.data);
    auto* to = static_cast<std::byte*>(nz.data);
    const size_t bytes = nz.num_elements() * size_of(nz.dtype);
    if (bytes == 0) return {};
    // The padding of the last fractals is part of the format.
    std::memset(to, 0, bytes);
    for_each_piece(nd.shape[0], nd.shape[1], nd.dtype, [&](size_t at_nd, size_t at_nz, size_t n) {
        std::memcpy(to + at_nz, from + at_nd, n);
    });
    return {};
}

Result<> from_fractal_nz(const ConstTensorView& nz, const TensorView& nd) {
    AFD_TRY(check(nd, nz));
    const auto* from = static_cast<const std::byte*>(nz.data);
    auto* to = static_cast<std::byte*>(nd.data);
    for_each_piece(nd.shape[0], nd.shape[1], nd.dtype, [&](size_t at_nd, size_t at_nz, size_t n) {
        std::memcpy(to + at_nd, from + at_nz, n);
    });
    return {};
}

}  // namespace afd::ops
