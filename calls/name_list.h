// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names in error messages: which there are, and which one may have been meant.

#include <string>
#include <string_view>
#include <vector>

#include "proto/did_you_mean.h"

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

// "; did you mean NAME?" with the nearest of `specs`, if one is near enough to be a slip.
template <typename Specs>
std::string suggestion(std::string_view name, const Specs& specs) {
    std::vector<std::string> names;
    for (const auto& spec : specs) names.emplace_back(spec.name);
    const std::string nearest = nearest_word(name, names);
    return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace afd::calls
