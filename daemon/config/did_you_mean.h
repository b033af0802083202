// SPDX-License-Identifier: Apache-2.0
#pragma once

// The nearest known word to a mistyped one, for error messages.

#include <span>
#include <string>
#include <string_view>

namespace afd::daemon {

// The candidate with the fewest single-character edits (insert, delete, replace, swap of
// neighbours) from `word`; empty if all need more than a third of its length plus one.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

// " (did you mean 'X'?)" with the nearest word, or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace afd::daemon
