// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference linear layers: y[i, n] = Σ_k x[i, k] · W[n, k].

#include "ops/reference/matrix.h"

namespace afd::ops::reference {

// Shapes: x [T, K], weight [N, K]; y [T, N], a rounding point.
Matrix linear(const Matrix& x, Rows<const Bf16> weight, Rounding rounding);

// Without the rounding point (router logits, head).
Matrix linear_f32(const Matrix& x, Rows<const Bf16> weight);

}  // namespace afd::ops::reference
