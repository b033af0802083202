// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/expert_ffn.h"

#include <algorithm>
#include <cmath>

#include "ops/reference/linear.h"
#include "proto/check.h"

namespace afd::ops::reference {

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
