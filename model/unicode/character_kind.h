// SPDX-License-Identifier: Apache-2.0
#pragma once

// Blanks (Unicode's White_Space) and characters of words (letters, marks, decimal digits,
// connectors) at the ends of a text in UTF-8.

#include <cstddef>
#include <string_view>

namespace afd::model {

// Bytes of the blanks that `text` begins or ends with.
size_t blanks_at_start(std::string_view text);
size_t blanks_at_end(std::string_view text);

bool begins_with_word_character(std::string_view text);
bool ends_with_word_character(std::string_view text);

}  // namespace afd::model
