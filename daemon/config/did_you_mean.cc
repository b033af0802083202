// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/did_you_mean.h"

#include <algorithm>
#include <vector>

namespace afd::daemon {

namespace {

// Optimal string alignment distance.
size_t edit_distance(std::string_view a, std::string_view b) {
    const size_t columns = b.size() + 1;
    std::vector<size_t> cost((a.size() + 1) * columns);
    for (size_t i = 0; i <= a.size(); ++i) {
        for (size_t j = 0; j < columns; ++j) {
            size_t& here = cost[i * columns + j];
            if (i == 0 || j == 0) {
                here = i + j;
                continue;
            }
            const size_t replaced =
                cost[(i - 1) * columns + j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            here = std::min(
                {cost[(i - 1) * columns + j] + 1, cost[i * columns + j - 1] + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                here = std::min(here, cost[(i - 2) * columns + j - 2] + 1);
            }
        }
    }
    return cost.back();
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
    std::string best;
    size_t best_distance = word.size() / 3 + 2;
    for (const std::string& candidate : candidates) {
        const size_t distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
    const std::string nearest = nearest_word(word, candidates);
    return nearest.empty() ? "" : " (did you mean '" + nearest + "'?)";
}

}  // namespace afd::daemon
