// SPDX-License-Identifier: Apache-2.0
#pragma once

// CallArguments: where the arguments of a call end, a JSON object, while they come.
//
// They end with the brace that closes them. Marks within their strings are text; elsewhere the
// first mark ends them, and they are broken. In a string with a bare line break or another control
// character, which JSON does not have, a quote is likely missing: from there on marks count
// everywhere. Whether they are JSON otherwise is not looked at.
//
// Answers depend on the text alone, in whatever parts it comes.

#include <cstddef>
#include <span>
#include <string_view>

namespace afd::model {

class CallArguments {
  public:
    // `text`: what has come and was not taken yet; at first from the opening brace on. `marks`: the
    // same each time. Returns how many bytes of it are arguments for certain, which are taken.
    // REQUIRES: not is_over().
    size_t take(std::string_view text, std::span<const std::string_view> marks);

    // Nothing behind what was taken belongs to them.
    bool is_over() const { return is_over_; }

  private:
    // One byte of the object.
    void take_byte(char byte);

    size_t depth_ = 0;  // Of objects and lists.
    bool is_in_string_ = false;
    bool is_escaped_ = false;  // The next byte of the string.
    bool is_broken_ = false;   // A string had what JSON does not have.
    bool is_over_ = false;
};

// What `rest`, which follows arguments and in which none of `marks` has come, says at the end of
// the text: nothing of what closes a call.
std::string_view said_behind_arguments(std::string_view rest,
                                       std::span<const std::string_view> marks);

}  // namespace afd::model
