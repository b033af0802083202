// SPDX-License-Identifier: Apache-2.0
#pragma once

// Splitter: one step of a pre-tokenizer: cuts a piece of text at the matches of a regular
// expression; matches and the gaps between them both become pieces ("Isolated").
//
// The expressions of tokenizer.json are written for Oniguruma and run here on PCRE2 (UTF, UCP).
// Two things mean something else there without any complaint, so they are translated or refused:
// \p{Han} and other script names (PCRE2 matches script extensions) become \p{sc:Han}; set
// operations and nested sets inside brackets ([..&&[..]]) are refused.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace afd::model {

// The same expression for PCRE2. Errors: kUnimplemented naming the construct.
Result<std::string> translate_pattern(std::string_view pattern);

class Splitter {
  public:
    // Errors: kUnimplemented (see translate_pattern), kDataLoss when PCRE2 does not accept it; the
    // message shows the pattern and the place.
    static Result<Splitter> compile(std::string_view pattern);

    Splitter(Splitter&&) noexcept;
    Splitter& operator=(Splitter&&) noexcept;
    ~Splitter();

    // Appends the pieces of `piece`, in order; none is empty. The piece is matched on its own: the
    // expression does not see the text around it.
    // REQUIRES: valid UTF-8. Errors: kResourceExhausted when matching exceeds PCRE2's limits.
    Result<> split(std::string_view piece, std::vector<std::string_view>& pieces);

  private:
    struct Impl;
    explicit Splitter(std::unique_ptr<Impl> impl);

    std::unique_ptr<Impl> impl_;
};

}  // namespace afd::model
