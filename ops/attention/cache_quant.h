// SPDX-License-Identifier: Apache-2.0
#pragma once

// Quantisation of the rows that an MLA cache stores: with given scales, and per tile.
//
//   given:    q = rint(v · scale), half to even, clamped to [-128, 127]; NaN gives 0
//   per tile: a = max|v|; s = alpha·a / 127; q = rint(v / s) of v clipped to ±alpha·a
// Dynamic quantisation without a clip is ops/linear/quantise.h. The same bits on every processor.

#include <cstddef>
#include <cstdint>

namespace afd::ops {

// Element i takes scales[i · scale_step]; step 0: one scale for all. v and q must not overlap.
void quantise_with_scales(
    const float* v, size_t count, const float* scales, size_t scale_step, int8_t* q);

// Returns s. All q are 0 where s is 0; a tile with NaN or infinity in it has s NaN and q 0.
// REQUIRES: alpha is a positive number.
float quantise_tile(const float* v, size_t count, float alpha, int8_t* q);

}  // namespace afd::ops
