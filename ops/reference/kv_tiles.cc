// SPDX-License-Identifier: Apache-2.0
#include "ops/reference/kv_tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace afd::ops::reference {
namespace {

constexpr double kE4m3Largest = 448;

// To the nearest of the numbers of e4m3, half to even: steps of 1/8 of the power of two below a
// value, and of 2^-9 below 2^-6.
double to_e4m3(double value) {
    if (value == 0) return 0;
    const int exponent = std::max(static_cast<int>(std::floor(std::log2(std::fabs(value)))), -6);
    const double step = std::ldexp(1.0, exponent - 3);
    return std::clamp(std::nearbyint(value / step) * step, -kE4m3Largest, kE4m3Largest);
}

void through_tile(KvDtype dtype, std::span<double> tile) {
    double largest = 0;
    bool is_finite = true;
    for (const double value : tile) {
        is_finite = is_finite && std::isfinite(value);
        largest = std::max(largest, std::fabs(static_cast<double>(static_cast<float>(value))));
    }
    const double most = dtype == KvDtype::kInt8 ? 127 : kE4m3Largest;
    const float scale = is_finite ? static_cast<float>(largest) / static_cast<float>(most)
                                  : std::numeric_limits<float>::quiet_NaN();
    for (double& value : tile) {
        float q = 0;
        if (scale > 0) {
            const auto quotient = static_cast<double>(static_cast<float>(value) / scale);
            q = static_cast<float>(dtype == KvDtype::kInt8
                                       ? std::clamp(std::nearbyint(quotient), -most, most)
                                       : to_e4m3(quotient));
        }
        value = round_point(static_cast<double>(q * scale), Rounding::kBf16);
    }
}

}  // namespace

void through_tiles(KvDtype dtype, size_t first, size_t count, Matrix& rows) {
    for (size_t row = 0; row < rows.num_rows; ++row) {
        for (size_t done = 0; done < count; done += kKvTile) {
            through_tile(dtype,
                         std::span(&rows.at(row, first + done), std::min(kKvTile, count - done)));
        }
    }
}

void through_channels(std::span<const float> scales, size_t first, Matrix& rows) {
    for (size_t row = 0; row < rows.num_rows; ++row) {
        for (size_t i = 0; i < scales.size(); ++i) {
            double& value = rows.at(row, first + i);
            const auto scaled = static_cast<double>(static_cast<float>(value) * scales[i]);
            const auto q = static_cast<float>(
                std::isnan(scaled) ? 0.0 : std::clamp(std::nearbyint(scaled), -128.0, 127.0));
            value = round_point(static_cast<double>(q / scales[i]), Rounding::kBf16);
        }
    }
}

}  // namespace afd::ops::reference
