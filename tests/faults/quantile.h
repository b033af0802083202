// SPDX-License-Identifier: Apache-2.0
#pragma once

// The smallest of the values that at least a share q of them do not exceed; 0 of none.

#include <algorithm>
#include <cmath>
#include <vector>

namespace afd::test {

inline double quantile(std::vector<double> values, double q) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
    return values[std::max<size_t>(rank, 1) - 1];
}

}  // namespace afd::test
