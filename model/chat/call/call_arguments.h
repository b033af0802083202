// SPDX-License-Identifier: Apache-2.0
#pragma once

// CallArguments: tells the arguments of one call, a JSON object, while they come, and what stands
// between them and the end of the call. What the end means is the parser's matter.
//
// They end with the brace that closes them. Marks within their strings are text; elsewhere the
// first mark ends them, and they are broken. In a string with a bare line break or another control
// character, which JSON does not have, a quote is likely missing: from there on marks count
// everywhere. Whether they are JSON otherwise is not looked at.
//
// Behind them come blanks and what closes the call, which are nothing. Where that is a brace the
// call is an object, too, whose further members are nothing, either, up to its brace or a mark as
// above. Any other text, up to the next mark and less the blanks before that, is said: a model that
// leaves out the end of a call may go on.
//
// Events depend on the text alone, in whatever parts it comes. Text costs what its bytes do.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/message/chat_event.h"

namespace afd::model {

class CallArguments {
  public:
    // `ends`: the marks that end arguments that broke, and a call. `closer`: what closes a call
    // before its mark; empty: nothing.
    explicit CallArguments(std::span<const std::string_view> ends, std::string_view closer = {})
        : ends_(ends.begin(), ends.end()), closer_(closer) {}

    // Takes from `pending`, at first from the opening brace on, what is certain, and tells it.
    // Returns the mark that ends the call, with which `pending` begins then; empty: more text is
    // needed.
    std::string_view advance(std::string& pending, std::vector<ChatEvent>& events);

    // The rest, at the end of the text: nothing of what closes a call.
    void finish(std::string_view pending, std::vector<ChatEvent>& events) const;

  private:
    enum class State {
        kArguments,
        kClosing,  // Blanks behind them, and what closes the call.
        kMembers,  // Of the call, behind them.
        kBehind,   // Up to the mark that ends the call.
    };

    void advance_arguments(std::string& pending, std::vector<ChatEvent>& events);
    void advance_closing(std::string& pending);
    void advance_members(std::string& pending);
    std::string_view advance_behind(std::string& pending, std::vector<ChatEvent>& events);
    // How many bytes of `text` are of the object for certain, which are taken.
    size_t take(std::string_view text);
    void take_byte(char byte);

    const std::vector<std::string_view> ends_;
    const std::string_view closer_;
    State state_ = State::kArguments;
    // Of the object that is taken: the arguments, then the call.
    size_t depth_ = 0;  // Of objects and lists.
    bool is_in_string_ = false;
    bool is_escaped_ = false;  // The next byte of the string.
    bool is_broken_ = false;   // A string had what JSON does not have.
    bool is_over_ = false;     // Nothing behind what was taken belongs to it.
    bool has_said_ = false;    // kBehind: something.
    size_t num_searched_ = 0;  // Bytes behind what was said that are blank, and no mark.
};

}  // namespace afd::model
