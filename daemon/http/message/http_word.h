// SPDX-License-Identifier: Apache-2.0
#pragma once

// Words of HTTP that are the same in capitals and in small letters: schemes, media types, hosts.
// And of which characters a word may be that a client chose, so that it can stand in a header or a
// log.

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

inline bool is_plain(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
           c == ':' || c == '/';
}

}  // namespace afd::daemon
