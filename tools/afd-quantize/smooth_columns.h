// SPDX-License-Identifier: Apache-2.0
#pragma once

// Smooth scales (SmoothQuant, Xiao et al. 2022, with alpha = 1/2): a channel of an expert's input
// that is much larger than the others takes the steps of an int8 row for itself. So each channel j
// is divided by s_j = sqrt(max|x_j| / max|W_j|) and the weights that meet it are multiplied by it.
//
// s_j is rounded to a power of two, so neither rounds anything: what changes is only how well both
// are quantised. The columns are those of gate and up together, which may come in parts.

#include <span>
#include <vector>

#include "ops/tensor/bf16.h"

namespace afd::tools {

// The largest magnitude of each channel of what goes into a layer's MLPs, [layers][hidden].
using ChannelRanges = std::vector<std::vector<float>>;

// Raises largest[j] to the largest magnitude of column j of these rows of largest.size() columns.
void widen_columns(std::span<const ops::Bf16> rows, std::vector<float>& largest);

// 1/s, [hidden]. `ranges` [hidden]: max|x_j|; `largest` [hidden]: max|W_j|. A channel that is zero
// on either side stays as it is.
std::vector<float> smooth_scales(const std::vector<float>& ranges,
                                 const std::vector<float>& largest);

// Multiplies column j of these rows by 1/smooth[j].
void smooth_columns(std::span<ops::Bf16> rows, const std::vector<float>& smooth);

}  // namespace afd::tools
