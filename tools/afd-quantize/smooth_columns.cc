// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/smooth_columns.h"

#include <algorithm>
#include <cmath>

namespace afd::tools {
namespace {

// Weights stay far from the ends of bf16's range.
constexpr int kExponentMax = 24;

}  // namespace

void widen_columns(std::span<const ops::Bf16> rows, std::vector<float>& largest) {
    for (size_t i = 0; i < rows.size(); ++i) {
        float& column = largest[i % largest.size()];
        column = std::max(column, std::abs(ops::to_float(rows[i])));
    }
}

std::vector<float> smooth_scales(const std::vector<float>& ranges,
                                 const std::vector<float>& largest) {
    std::vector<float> smooth(ranges.size(), 1.0f);
    for (size_t i = 0; i < ranges.size(); ++i) {
        if (!(ranges[i] > 0) || !(largest[i] > 0)) continue;
        const double s = 0.5 * (std::log2(ranges[i]) - std::log2(largest[i]));
        const double exponent =
            std::clamp(std::nearbyint(s), -1.0 * kExponentMax, 1.0 * kExponentMax);
        smooth[i] = std::ldexp(1.0f, -static_cast<int>(exponent));
    }
    return smooth;
}

void smooth_columns(std::span<ops::Bf16> rows, const std::vector<float>& smooth) {
    for (size_t i = 0; i < rows.size(); ++i) {
        // Exact, for the scales are powers of two.
        rows[i] = ops::from_float(ops::to_float(rows[i]) / smooth[i % smooth.size()]);
    }
}

}  // namespace afd::tools
