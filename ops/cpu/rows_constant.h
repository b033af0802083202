// SPDX-License-Identifier: Apache-2.0
#pragma once

// The number of rows of a tile as a constant, so that its sums stay in registers. Included by the
// kernel files only.

#include <cstddef>
#include <utility>

#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// Rows of a tile of the AVX-512 classes: 12 rows x 2 registers of columns fill the 32 zmm registers
// best (24 sums, more than the latency of vdpbf16ps needs).
inline constexpr size_t kAvx512TileRows = 12;

// Calls body.template operator()<num_rows>(). REQUIRES: num_rows in [kRows, kRowsMax]. Compilers
// make a jump table of it.
template <size_t kRowsMax = kAvx512TileRows, size_t kRows = 1, typename Body>
[[gnu::always_inline]] inline void with_rows(size_t num_rows, const Body& body) {
    static_assert(kRows <= kRowsMax && kRowsMax <= kTileRowsMax);
    if constexpr (kRows < kRowsMax) {
        if (num_rows != kRows) return with_rows<kRowsMax, kRows + 1>(num_rows, body);
    }
    body.template operator()<kRows>();
}

// Calls body(i) for i = 0 ... kCount - 1, without a loop: GCC keeps an array in registers from its
// first use to its last only where all its indices are constants before loops are unrolled. A body
// must be inlined always. With a loop, sums are written to the stack before the loop over depth and
// after it: a tile of twelve rows in cache does 423 instead of 468 GOP/s (int8), and 168 instead of
// 221 GFLOP/s (bf16, depth 64).
template <size_t kCount, typename Body>
[[gnu::always_inline]] inline void unrolled(const Body& body) {
    [&]<size_t... kIndex>(std::index_sequence<kIndex...>) __attribute__((always_inline)) {
        (body(kIndex), ...);
    }
    (std::make_index_sequence<kCount>{});
}

}  // namespace
}  // namespace afd::ops::cpu
