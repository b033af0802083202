// SPDX-License-Identifier: Apache-2.0
#pragma once

// StopStrings: ends a growing text before (or behind) the first of some strings in it.
//
// Which one is first depends on the text alone, not on the parts in which it comes: the string that
// is complete first, and of those complete at the same byte the longest. Text that may be the start
// of one is held back until it is known; with whole characters in, whole characters come out.
//
// One automaton for each string (Knuth, Morris, Pratt: "Fast pattern matching in strings", SIAM
// J. Comput. 6, 1977), so a byte costs the same however often a text begins like a stop string.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace afd::model {

class StopStrings {
  public:
    // REQUIRES: none is empty, all are valid UTF-8. `keeps_match`: the text ends behind the match.
    StopStrings(std::vector<std::string> strings, bool keeps_match);

    // What of the text so far is certain and was not returned yet. After a match: nothing more.
    std::string append(std::string_view text) { return take(text, true); }
    // The same of a text in which none may be complete; one that begins in it may be complete
    // behind it.
    std::string append_unended(std::string_view text) { return take(text, false); }

    // The end of the text: what was held back.
    std::string finish();

    // The string that ended the text.
    const std::optional<std::string>& match() const { return match_; }

  private:
    struct Pattern {
        std::string string;
        std::vector<size_t> fallback;  // [i]: the longest border of the first i + 1 bytes.
        size_t num_matched = 0;        // Bytes of it that the text ends with.
    };

    static void advance(Pattern& pattern, char byte);
    std::string take(std::string_view text, bool may_match);

    std::vector<Pattern> patterns_;
    const bool keeps_match_;
    std::string held_;
    std::optional<std::string> match_;
};

}  // namespace afd::model
