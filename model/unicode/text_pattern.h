// SPDX-License-Identifier: Apache-2.0
#pragma once

// TextPattern: what a step of a tokenizer looks for in a text: a regular expression or a literal.
// It finds; what becomes of a match is its owner's business (splitter.h, normalizer.h).
// Expressions are Oniguruma's and run on PCRE2 (pattern_translator.h).

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace afd::model {

// How long a text of so many bytes may become by what a tokenizer.json replaces in it: a file has
// any number of steps, and each could double it. Models replace a byte by three; a compatible form
// makes eleven of one.
constexpr size_t replaced_bytes_max(size_t text_bytes) {
    return 4096 + 64 * text_bytes;
}

struct PatternMatch {
    size_t begin = 0;
    size_t end = 0;  // Equal to `begin`: the expression matches nothing, here.
};

class TextPattern {
  public:
    // Errors: kUnimplemented (see translate_pattern), kDataLoss when PCRE2 does not accept it; the
    // message shows the expression and the place.
    static Result<TextPattern> expression(std::string_view pattern);

    // REQUIRES: text is not empty.
    static TextPattern literal(std::string text);

    TextPattern(TextPattern&&) noexcept;
    TextPattern& operator=(TextPattern&&) noexcept;
    ~TextPattern();

    // Appends the matches in `text`, from left to right; none overlaps another. An empty match that
    // touches the match before it does not count. `is_old`: the caller knows that the text has no
    // new characters (new_characters.h); else they are looked for.
    // REQUIRES: valid UTF-8. Errors: kResourceExhausted when matching exceeds PCRE2's limits.
    Result<> find_all(std::string_view text,
                      std::vector<PatternMatch>& matches,
                      bool is_old = false);

    // `text` with `content` in the place of each match. Errors: as find_all; kResourceExhausted
    // when the result would be longer than `bytes_max`.
    Result<std::string> replaced(std::string_view text, std::string_view content, size_t bytes_max);

  private:
    struct Impl;
    explicit TextPattern(std::unique_ptr<Impl> impl);

    std::unique_ptr<Impl> impl_;
};

}  // namespace afd::model
