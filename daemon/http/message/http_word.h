// SPDX-License-Identifier: Apache-2.0
#pragma once

// Words of HTTP that are the same in capitals and in small letters: schemes, media types, hosts.

#include <algorithm>
#include <cctype>
#include <string_view>

namespace afd::daemon {

inline bool is_same_word(std::string_view one, std::string_view other) {
    return std::ranges::equal(one, other, [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) ==
               std::tolower(static_cast<unsigned char>(b));
    });
}

// Whether `text` begins with `word`, in any letters.
inline bool begins_with_word(std::string_view text, std::string_view word) {
    return is_same_word(text.substr(0, word.size()), word);
}

}  // namespace afd::daemon
