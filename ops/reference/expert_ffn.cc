// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/expert_ffn.h"

#include <algorithm>
#include <cmath>

#include "ops/reference/linear.h"
#include "proto/check.h"

namespace afd::ops::reference {
namespace {

double silu(double x) {
    return x / (1.0 + std::exp(-x));
}

double gelu(double x) {
    return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
}

double gelu_tanh(double x) {
    const double inner = std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + std::tanh(inner));
}

// The formulas of ops/format/expert_activation.h; ungated ones do not look at `up`.
double activate(ExpertActivation activation, double gate, double up) {
    switch (activation) {
        case ExpertActivation::kSilu:
            return silu(gate) * up;
        case ExpertActivation::kGelu:
            return gelu(gate) * up;
        case ExpertActivation::kGeluTanh:
            return gelu_tanh(gate) * up;
        case ExpertActivation::kSwigluOai: {
            const double g = std::min(gate, 7.0);
            return (std::clamp(up, -7.0, 7.0) + 1.0) * g / (1.0 + std::exp(-1.702 * g));
        }
        case ExpertActivation::kSiluUngated:
            return silu(gate);
        case ExpertActivation::kGeluUngated:
            return gelu(gate);
        case ExpertActivation::kGeluTanhUngated:
            return gelu_tanh(gate);
        case ExpertActivation::kReluSquared:
            return gate < 0.0 ? 0.0 : gate * gate;
    }
    AFD_ASSERT(false, "activation %d", static_cast<int>(activation));
    return 0.0;
}

Matrix down_of(const Matrix& gate,
               const Matrix& up,
               const ExpertWeights& weights,
               Rounding rounding) {
    Matrix h(gate.num_rows, gate.num_cols);
    const bool has_up = is_gated(weights.activation);
    for (size_t i = 0; i < h.values.size(); ++i) {
        const double up_value = has_up ? up.values[i] : 0.0;
        h.values[i] = round_point(activate(weights.activation, gate.values[i], up_value), rounding);
    }
    return linear(h, weights.down, rounding, weights.down_bias);
}

}  // namespace

Matrix expert_ffn(const Matrix& x, const ExpertWeights& weights, Rounding rounding) {
    const Matrix gate = linear(x, weights.gate, rounding, weights.gate_bias);
    Matrix up;
    if (is_gated(weights.activation)) up = linear(x, weights.up, rounding, weights.up_bias);
    return down_of(gate, up, weights, rounding);
}

Matrix expert_ffn(std::span<const int8_t> x, float x_scale, const ExpertWeights& weights) {
    const Matrix gate = linear(x, x_scale, weights.gate.int8, weights.gate_bias);
    Matrix up;
    if (is_gated(weights.activation)) {
        up = linear(x, x_scale, weights.up.int8, weights.up_bias);
    }
    return down_of(gate, up, weights, Rounding::kBf16);
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
