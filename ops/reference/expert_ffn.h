// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference MLP (expert, shared experts, dense layer) and combine.

#include <cstdint>
#include <span>

#include "ops/format/expert_activation.h"
#include "ops/reference/linear.h"
#include "ops/reference/matrix.h"

namespace afd::ops::reference {

struct ExpertWeights {
    LinearWeight gate;  // [I, H]
    LinearWeight up;    // [I, H]; empty where the activation is ungated
    LinearWeight down;  // [H, I]
    ExpertActivation activation = ExpertActivation::kSilu;
    std::span<const Bf16> gate_bias = {};  // [I], or none, as the two others:
    std::span<const Bf16> up_bias = {};    // [I]
    std::span<const Bf16> down_bias = {};  // [H]
};

// gate and up rounded, h = the activation (silu(gate) · up, say) rounded, y = h·Wdownᵀ rounded; a
// bias is part of its sum. x, y [T, H].
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
