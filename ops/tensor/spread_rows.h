// SPDX-License-Identifier: Apache-2.0
#pragma once

// Row strides that suit the tile kernels, which read up to 32 rows side by side.
//
// Rows that lie a power of two apart fall on the same sets of the first-level cache and push each
// other out. That cache has 64 sets of lines: at 2 lines apart, or 2 more than a multiple of 4,
// each of 32 rows begins in a set of its own, and pieces of 8 or 16 lines fill all sets alike. At
// an odd number of lines apart, AMX had 0.91 to 0.97 of the speed with 256 and 512 rows of 2048
// elements.

#include <cstddef>

#include "ops/tensor/workspace.h"

namespace afd::ops {

// In elements of T; at least num_cols.
template <typename T>
constexpr size_t spread_stride(size_t num_cols) {
    const size_t lines = (num_cols * sizeof(T) + kWorkspaceAlignment - 1) / kWorkspaceAlignment;
    return ((lines + 1) / 4 * 4 + 2) * kWorkspaceAlignment / sizeof(T);
}

}  // namespace afd::ops
