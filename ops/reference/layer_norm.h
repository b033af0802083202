// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference LayerNorm; see ops/attention/layer_norm.h.

#include <span>

#include "ops/reference/matrix.h"

namespace afd::ops::reference {

// ((x − mean) / sqrt(variance + epsilon) · gamma + beta) rounded once. Shapes: gamma, beta
// [x.num_cols].
Matrix layer_norm(const Matrix& x,
                  std::span<const Bf16> gamma,
                  std::span<const Bf16> beta,
                  double epsilon,
                  Rounding rounding);

}  // namespace afd::ops::reference
