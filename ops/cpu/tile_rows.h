// SPDX-License-Identifier: Apache-2.0
#pragma once

// The last steps of a tile for compilers to vectorise, where a class has no better ones
// (swiglu_avx512.h). Included by kernels_*.cc only.

#include <cstddef>

#include "ops/cpu/row_kernels.h"

namespace afd::ops::cpu {
namespace {

void round_tile(const float* sums, size_t count, Bf16* const* y) {
    for (size_t r = 0; r < count; ++r, sums += kPanelColumns) {
        for (size_t i = 0; i < kPanelColumns; ++i) y[r][i] = from_float(sums[i]);
    }
}

void swiglu_tile(const float* sums, size_t count, Bf16* const* h) {
    for (size_t r = 0; r < count; ++r, sums += kPanelColumns) {
        swiglu_row(sums, sums + kLanes, kLanes, h[r]);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
