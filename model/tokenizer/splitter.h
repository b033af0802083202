// SPDX-License-Identifier: Apache-2.0
#pragma once

// Splitter: one step of a pre-tokenizer: cuts a piece of text at the matches of a pattern. What
// becomes of a match and of the gap before it says the behaviour:
//
//                           "the-final--day" at "-"
//   kIsolated               the | - | final | - | - | day
//   kRemoved                the | final | day
//   kContiguous             the | - | final | -- | day
//   kMergedWithPrevious     the- | final- | - | day
//   kMergedWithNext         the | -final | - | -day

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/unicode/text_pattern.h"
#include "proto/status.h"

namespace afd::model {

enum class SplitBehavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

// By its name in tokenizer.json.
std::optional<SplitBehavior> split_behavior(std::string_view name);

class Splitter {
  public:
    // `is_inverted`: what the pattern does not match counts as the match, and the other way round.
    Splitter(TextPattern pattern, SplitBehavior behavior, bool is_inverted);

    // Appends the pieces of `piece`, in order; none is empty. The piece is matched on its own: the
    // pattern does not see the text around it.
    // REQUIRES: valid UTF-8. `is_old`, and errors: as TextPattern::find_all.
    Result<> split(std::string_view piece,
                   std::vector<std::string_view>& pieces,
                   bool is_old = false);

    // Whether text may be lost between the pieces.
    bool removes_text() const { return behavior_ == SplitBehavior::kRemoved; }

  private:
    // Cut `piece` at matches_. What most pre-tokenizers ask for has a loop of its own.
    void isolate(std::string_view piece, std::vector<std::string_view>& pieces) const;
    void fold(std::string_view piece, std::vector<std::string_view>& pieces) const;

    TextPattern pattern_;
    SplitBehavior behavior_;
    bool is_inverted_;
    std::vector<PatternMatch> matches_;  // Scratch.
};

}  // namespace afd::model
