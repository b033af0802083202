// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference SwiGLU MLP (expert, shared experts, dense layer) and combine.

#include <cstdint>
#include <span>
#include <vector>

#include "ops/reference/linear.h"
#include "ops/reference/matrix.h"
#include "ops/weight_format.h"

namespace afd::ops::reference {

struct ExpertWeights {
    LinearWeight gate;  // [I, H]
    LinearWeight up;    // [I, H]
    LinearWeight down;  // [H, I]
};

// gate and up rounded, h = (silu(gate) · up) rounded, y = h·Wdownᵀ rounded. x, y [T, H].
Matrix expert_ffn(const Matrix& x, const ExpertWeights& weights, Rounding rounding);

// The same with int8 weights and one scale an output, [I], [I] and [H].
struct Int8ExpertWeights {
    Int8Weight gate;  // [I, H]
    Int8Weight up;    // [I, H]
    Int8Weight down;  // [H, I]
};

// One row, quantised already: gate and up are the exact int32 sum · row scale · column scale, in
// that order, in fp32 and rounded to bf16; h is quantised again before down. y [H].
std::vector<Bf16> expert_ffn(std::span<const int8_t> x,
                             float x_scale,
                             const Int8ExpertWeights& weights);

// One token: acc = 0; for each slot k ascending with rows[k] not null: acc += rows[k]·weights[k];
// rounded once. Shared experts are the last slots, with weight 1. out [hidden].
void combine(std::span<const double* const> rows,
             std::span<const double> weights,
             Rounding rounding,
             std::span<double> out);

}  // namespace afd::ops::reference
