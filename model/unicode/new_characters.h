// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which texts hold a character that PCRE2 knows otherwise than the tokenizers library does: those
// of unicode_additions.h, and the one old character that PCRE2 takes for a blank. The others need
// only the faster translation of a pattern (pattern_translator.h).

#include <string_view>

namespace afd::model {

// REQUIRES: valid UTF-8. One pass.
bool has_new_characters(std::string_view text);

}  // namespace afd::model
