// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/expert_ffn.h"

#include <algorithm>
#include <cmath>

#include "ops/reference/linear.h"
#include "proto/check.h"

namespace afd::ops::reference {
namespace {

Matrix down_of(const Matrix& gate,
               const Matrix& up,
               const ExpertWeights& weights,
               Rounding rounding) {
    Matrix h(gate.num_rows, gate.num_cols);
    for (size_t i = 0; i < h.values.size(); ++i) {
        const double silu = gate.values[i] / (1.0 + std::exp(-gate.values[i]));
        h.values[i] = round_point(silu * up.values[i], rounding);
    }
    return linear(h, weights.down, rounding);
}

}  // namespace

Matrix expert_ffn(const Matrix& x, const ExpertWeights& weights, Rounding rounding) {
    return down_of(
        linear(x, weights.gate, rounding), linear(x, weights.up, rounding), weights, rounding);
}

Matrix expert_ffn(std::span<const int8_t> x, float x_scale, const ExpertWeights& weights) {
    return down_of(linear(x, x_scale, weights.gate.int8),
                   linear(x, x_scale, weights.up.int8),
                   weights,
                   Rounding::kBf16);
}

void combine(std::span<const double* const> rows,
             std::span<const double> weights,
             Rounding rounding,
             std::span<double> out) {
    AFD_ASSERT(rows.size() == weights.size(), "%zu rows", rows.size());
    std::fill(out.begin(), out.end(), 0.0);
    for (size_t slot = 0; slot < rows.size(); ++slot) {
        if (rows[slot] == nullptr) continue;
        for (size_t i = 0; i < out.size(); ++i) out[i] += rows[slot][i] * weights[slot];
    }
    for (double& value : out) value = round_point(value, rounding);
}

}  // namespace afd::ops::reference
