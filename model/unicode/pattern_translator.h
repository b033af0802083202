// SPDX-License-Identifier: Apache-2.0
#pragma once

// The regular expressions of tokenizer.json are written for Oniguruma (in its Ruby syntax) and run
// here on PCRE2 (UTF, UCP). What means something else there without any complaint is translated:
//
//   [a&&[^b]], [a[bc]]     set operations: look-aheads and alternatives for one character
//   \p{Han}                scripts, not script extensions: \p{sc:Han}
//   \p{L}, \d, ...         with what newer Unicode adds (unicode_additions.h)
//   \s, \w, \b, \h         Oniguruma's blanks, word characters and hexadecimal digits
//   x{2,3}+, x{2}?, x{,3}  a repetition repeated, not possessive or lazy; 0 to 3
//   \u3042, \v             \x{3042}, \x{B}
//
// Other letters after a backslash that do not mean the same in both are refused, and so is an
// expression of more than 16 KiB.
//
// The expression \s+$ looks at a run of blanks from its start only, where PCRE2 would take a run of
// n apart n times.

#include <string>
#include <string_view>

#include "proto/status.h"

namespace afd::model {

// A class with what newer Unicode adds costs every character a comparison with each range, half of
// the speed on English text. So there are two translations, and texts choose.
enum class PatternUse {
    kOldTexts,  // Texts without has_new_characters() (new_characters.h).
    kAllTexts,
};

// The same expression for PCRE2, which need not accept it. Errors: kUnimplemented naming the
// construct.
Result<std::string> translate_pattern(std::string_view pattern, PatternUse use);

}  // namespace afd::model
