// SPDX-License-Identifier: Apache-2.0
#pragma once

// The nearest known word to a mistyped one, for the error messages of daemon, clients and calls by
// name. It is here because proto/ is the one folder that all of them see.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace afd {

// Single-character edits from `a` to `b`: insert, delete, replace, swap of neighbours (optimal
// string alignment).
inline size_t edit_distance(std::string_view a, std::string_view b) {
    const size_t columns = b.size() + 1;
    std::vector<size_t> cost((a.size() + 1) * columns);
    const auto at = [&](size_t i, size_t j) -> size_t& { return cost[i * columns + j]; };
    for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
    for (size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
            at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
            }
        }
    }
    return cost.back();
}

// A longer word is no slip, and its distance takes time and memory by the product of both lengths.
inline constexpr size_t kSlipBytesMax = 64;

// The first of the candidates with the fewest edits from `word`; empty if all need more than a
// third of its length plus one, or `word` is empty or longer than kSlipBytesMax.
inline std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
    if (word.empty() || word.size() > kSlipBytesMax) return "";
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

// " (did you mean 'X'?)" with the nearest word, or nothing.
inline std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
    const std::string nearest = nearest_word(word, candidates);
    return nearest.empty() ? "" : " (did you mean '" + nearest + "'?)";
}

}  // namespace afd
