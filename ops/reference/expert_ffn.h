// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference SwiGLU MLP (expert, shared experts, dense layer) and combine.

#include <cstdint>
#include <span>

#include "ops/reference/linear.h"
#include "ops/reference/matrix.h"

namespace afd::ops::reference {

struct ExpertWeights {
    LinearWeight gate;  // [I, H]
    LinearWeight up;    // [I, H]
    LinearWeight down;  // [H, I]
};

// gate and up rounded, h = (silu(gate) · up) rounded, y = h·Wdownᵀ rounded. x, y [T, H].
Matrix expert_ffn(const Matrix& x, const ExpertWeights& weights, Rounding rounding);

// The same of one row that was quantised before, with kBf16. REQUIRES: gate and up are int8.
Matrix expert_ffn(std::span<const int8_t> x, float x_scale, const ExpertWeights& weights);

// One token: acc = 0; for each slot k ascending with rows[k] not null: acc += rows[k]·weights[k];
// rounded once. Shared experts are the last slots, with weight 1. out [hidden].
void combine(std::span<const double* const> rows,
             std::span<const double> weights,
             Rounding rounding,
             std::span<double> out);

}  // namespace afd::ops::reference
