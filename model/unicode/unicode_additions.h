// SPDX-License-Identifier: Apache-2.0
#pragma once

// What Unicode 15, 15.1 and 16 added: PCRE2 10.42 knows version 14, the tokenizers library 16, and
// a class of characters that lacks some splits texts with new emoji or ideographs otherwise. With a
// newer PCRE2 the table says nothing new.

#include <cstdint>
#include <span>
#include <string_view>

namespace afd::model {

struct UnicodeAddition {
    uint32_t first;
    uint32_t last;
    std::string_view category;  // Of two letters.
    std::string_view script;
};

// In the order of code points.
std::span<const UnicodeAddition> unicode_additions();

}  // namespace afd::model
