// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChoiceMember: a member of Config that is one of an option's choices, by its place among them. The
// enums are in choices.h and in schedule/, the options that take them in option_topics.h.

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "daemon/config/config.h"

namespace afd::daemon {

struct ChoiceMember {
    void (*set)(Config& config, size_t index);
    size_t (*get)(const Config& config);
};

// The member is an enum whose values count from 0.
template <auto member>
constexpr ChoiceMember choice() {
    using Choice = std::remove_reference_t<decltype(std::declval<Config&>().*member)>;
    return {[](Config& config, size_t index) { config.*member = static_cast<Choice>(index); },
            [](const Config& config) { return static_cast<size_t>(config.*member); }};
}

// The names of an enum whose values count from 0 to `last`.
template <typename Choice>
std::vector<std::string> names_up_to(Choice last) {
    std::vector<std::string> names;
    for (size_t i = 0; i <= static_cast<size_t>(last); ++i) {
        names.emplace_back(name_of(static_cast<Choice>(i)));
    }
    return names;
}

}  // namespace afd::daemon
