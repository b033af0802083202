// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/expert_ffn.h"

#include <algorithm>
#include <cmath>

#include "ops/reference/linear.h"
#include "ops/reference/quantise.h"
#include "proto/check.h"

namespace afd::ops::reference {
namespace {

std::vector<Bf16> int8_linear(std::span<const int8_t> x, float x_scale, const Int8Weight& weight) {
    std::vector<Bf16> y;
    for (size_t n = 0; n < weight.num_outputs(); ++n) {
        int64_t sum = 0;
        for (size_t k = 0; k < x.size(); ++k) sum += int64_t{x[k]} * weight.values.row(n)[k];
        const float scaled = static_cast<float>(sum) * x_scale;
        y.push_back(from_float(scaled * weight.scale[n]));
    }
    return y;
}

}  // namespace

Matrix expert_ffn(const Matrix& x, const ExpertWeights& weights, Rounding rounding) {
    const Matrix gate = linear(x, weights.gate, rounding);
    const Matrix up = linear(x, weights.up, rounding);
    Matrix h(gate.num_rows, gate.num_cols);
    for (size_t i = 0; i < h.values.size(); ++i) {
        const double silu = gate.values[i] / (1.0 + std::exp(-gate.values[i]));
        h.values[i] = round_point(silu * up.values[i], rounding);
    }
    return linear(h, weights.down, rounding);
}

std::vector<Bf16> expert_ffn(std::span<const int8_t> x,
                             float x_scale,
                             const Int8ExpertWeights& weights) {
    const std::vector<Bf16> gate = int8_linear(x, x_scale, weights.gate);
    const std::vector<Bf16> up = int8_linear(x, x_scale, weights.up);
    std::vector<Bf16> h(gate.size());
    for (size_t i = 0; i < h.size(); ++i) {
        const double g = to_float(gate[i]);
        const double silu = g / (1.0 + std::exp(-g));
        h[i] = from_float(static_cast<float>(round_point(silu * to_float(up[i]), Rounding::kBf16)));
    }
    std::vector<int8_t> q(h.size());
    const float scale = quantise_row(DType::kBf16, h.data(), nullptr, h.size(), q.data());
    return int8_linear(q, scale, weights.down);
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
