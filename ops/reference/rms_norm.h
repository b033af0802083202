// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference norms and residual add; see ops/attention/rms_norm.h.

#include <span>

#include "ops/reference/matrix.h"

namespace afd::ops::reference {

// ((x / sqrt(mean(x²) + epsilon)) rounded · gamma) rounded.
Matrix rms_norm(const Matrix& x, std::span<const Bf16> gamma, double epsilon, Rounding rounding);

// (x / sqrt(mean(x²) + epsilon) · gamma · scale) rounded once: the norm inside MLA.
Matrix rms_norm_scaled(
    const Matrix& x, std::span<const Bf16> gamma, double epsilon, double scale, Rounding rounding);

// (a + b) rounded.
Matrix add(const Matrix& a, const Matrix& b, Rounding rounding);

}  // namespace afd::ops::reference
