// SPDX-License-Identifier: Apache-2.0
#pragma once

// The axes of the MLA operators' tensors: tokens are [T], or [B, S] where they are not merged; what
// follows are a tensor's own axes. For tensors that nobody has judged yet.

#include <cstddef>
#include <initializer_list>

#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// The size of an axis counted from the last one, or 0 if there is none.
inline size_t size_from_end(const ConstTensorView& view, size_t axis) {
    return axis < view.rank ? view.shape[view.rank - 1 - axis] : 0;
}

inline size_t count_tokens(const ConstTensorView& rows, size_t own_axes) {
    return rows.rank == own_axes + 1 ? rows.shape[0] : rows.shape[0] * rows.shape[1];
}

// The token axes of `rows`, then `own`, as a contiguous view without data.
inline TensorView with_token_axes(DType dtype,
                                  const ConstTensorView& rows,
                                  size_t own_axes,
                                  std::initializer_list<size_t> own) {
    TensorView view{.data = nullptr, .dtype = dtype};
    const size_t num_axes = rows.rank > own_axes ? rows.rank - own_axes : 0;
    for (size_t axis = 0; axis < num_axes && axis < 2; ++axis) {
        view.shape[view.rank++] = rows.shape[axis];
    }
    for (const size_t size : own) view.shape[view.rank++] = size;
    size_t stride = 1;
    for (size_t axis = view.rank; axis-- > 0;) {
        view.strides[axis] = stride;
        stride *= view.shape[axis];
    }
    return view;
}

}  // namespace afd::ops
