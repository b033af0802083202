// SPDX-License-Identifier: Apache-2.0
#pragma once

// Row strides that suit the tile kernels, which read up to 12 rows side by side.
//
// Rows that lie a power of two apart fall on the same sets of the first-level cache and push each
// other out; at an odd number of cache lines apart they do not.

#include <cstddef>

#include "ops/tensor/workspace.h"

namespace afd::ops {

// In elements of T; at least num_cols.
template <typename T>
constexpr size_t spread_stride(size_t num_cols) {
    const size_t lines =
        (num_cols * sizeof(T) + kWorkspaceAlignment - 1) / kWorkspaceAlignment | size_t{1};
    return lines * kWorkspaceAlignment / sizeof(T);
}

}  // namespace afd::ops
