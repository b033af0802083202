// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names in error messages: which there are, and which one may have been meant.

#include <string>
#include <string_view>

namespace afd::calls {

// "a, b, c", or "none".
template <typename Specs>
std::string names_of(const Specs& specs) {
    std::string names;
    for (const auto& spec : specs) {
        names += (names.empty() ? "" : ", ") + std::string(spec.name);
    }
    return names.empty() ? "none" : names;
}

// Letters to insert, delete or replace to get from one to the other (Levenshtein).
size_t edit_distance(std::string_view from, std::string_view to);

// "; did you mean NAME?" with the nearest of `specs`, if one is near enough to be a slip.
template <typename Specs>
std::string suggestion(std::string_view name, const Specs& specs) {
    constexpr size_t kNameMax = 64;
    // A longer one is no slip, and the distance takes the product of both lengths.
    if (name.empty() || name.size() > kNameMax) return "";
    std::string_view nearest;
    size_t least = 1 + name.size() / 3;
    for (const auto& spec : specs) {
        const size_t distance = edit_distance(name, spec.name);
        if (distance > least || (distance == least && !nearest.empty())) continue;
        least = distance;
        nearest = spec.name;
    }
    return nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?";
}

}  // namespace afd::calls
