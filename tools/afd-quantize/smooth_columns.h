// SPDX-License-Identifier: Apache-2.0
#pragma once

// Smooth scales (SmoothQuant, Xiao et al. 2022, with alpha = 1/2): a channel of an expert's input
// that is much larger than the others takes the steps of an int8 row for itself. So each channel j
// is divided by s_j = sqrt(max|x_j| / max|W_j|) and the weights that meet it are multiplied by it.
//
// s_j is rounded to a power of two, so neither rounds anything: what changes is only how well both
// are quantised.

#include <vector>

#include "model/checkpoint/stored_matrix.h"

namespace afd {

// Multiplies the columns of the bf16 matrices gate and up [intermediate, hidden] by s and returns
// the smooth scales 1/s, [hidden]. `ranges` [hidden]: max|x_j|. A channel that is zero on either
// side stays as it is.
std::vector<float> smooth_columns(const std::vector<float>& ranges,
                                  model::StoredMatrix& gate,
                                  model::StoredMatrix& up);

}  // namespace afd
