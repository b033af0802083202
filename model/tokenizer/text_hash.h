// SPDX-License-Identifier: Apache-2.0
#pragma once

// TextHash: for maps with texts as keys that are asked with a view: no copy is made for a look-up.

#include <cstddef>
#include <functional>
#include <string_view>

namespace afd::model {

struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

}  // namespace afd::model
