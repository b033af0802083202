// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/smooth_columns.h"

#include <algorithm>
#include <cmath>

namespace afd {
namespace {

// Weights stay far from the ends of bf16's range.
constexpr int kExponentMax = 24;

void widen(const model::StoredMatrix& matrix, std::vector<float>& largest) {
    for (size_t i = 0; i < matrix.bf16.size(); ++i) {
        float& column = largest[i % largest.size()];
        column = std::max(column, std::abs(ops::to_float(matrix.bf16[i])));
    }
}

void multiply(model::StoredMatrix& matrix, const std::vector<int>& exponents) {
    for (size_t i = 0; i < matrix.bf16.size(); ++i) {
        const float weight = ops::to_float(matrix.bf16[i]);
        matrix.bf16[i] = ops::from_float(std::ldexp(weight, exponents[i % exponents.size()]));
    }
}

}  // namespace

std::vector<float> smooth_columns(const std::vector<float>& ranges,
                                  model::StoredMatrix& gate,
                                  model::StoredMatrix& up) {
    std::vector<float> weights(ranges.size(), 0.0f);
    widen(gate, weights);
    widen(up, weights);
    std::vector<int> exponents(ranges.size(), 0);
    std::vector<float> smooth(ranges.size(), 1.0f);
    for (size_t i = 0; i < ranges.size(); ++i) {
        if (!(ranges[i] > 0) || !(weights[i] > 0)) continue;
        const double s = 0.5 * (std::log2(ranges[i]) - std::log2(weights[i]));
        exponents[i] = static_cast<int>(
            std::clamp(std::nearbyint(s), -1.0 * kExponentMax, 1.0 * kExponentMax));
        smooth[i] = std::ldexp(1.0f, -exponents[i]);
    }
    multiply(gate, exponents);
    multiply(up, exponents);
    return smooth;
}

}  // namespace afd
