// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChannelParser: OutputParser for gpt-oss, whose answer is messages, each in a channel:
//
//   <|channel|>analysis<|message|>thought<|end|><|start|>assistant<|channel|>final<|message|>answer
//
// The prompt has ended with the first <|start|>assistant. What is in `analysis` is thought; all
// else is said: `final`, and `commentary`, in which it announces what it does. The form is that of
// OpenAI's "harmony response format". A call of a tool is a message to a function,
//
//   <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
//
// in whatever channel; whom it is for may stand in front of the channel. Where no tool was offered
// its text is said. What begins like a header and has 1 KiB without an end is said.
//
// Of an answer that has a format (ReasoningSyntax::kFinalChannel) the first message that is no
// thought is the last: all behind its header is said, marks included, as they are part of a value.
//
// A message that says something, or thinks it, behind another that did, begins a line of its own.
//
// Events depend on the text alone, and calls are told while their arguments come, as those of an
// OutputParser.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/call/call_arguments.h"
#include "model/chat/message/chat_event.h"
#include "model/chat/message/chat_text.h"

namespace afd::model {

class ChannelParser {
  public:
    explicit ChannelParser(bool reads_calls = false, bool says_one = false)
        : reads_calls_(reads_calls), says_one_(says_one) {}

    // What is certain after more of the text.
    std::vector<ChatEvent> append(std::string_view text);
    // The rest, at the end of the text. A header that was not whole is nothing, nor is a call whose
    // arguments had not begun when the text `was_cut`. A model that ended it there calls with none.
    std::vector<ChatEvent> finish(bool was_cut = false);

  private:
    enum class State {
        kHeader,
        kText,       // Of a message that is no call.
        kCall,       // Of one, until its arguments begin, or to its end.
        kArguments,  // From arguments that are told while they come to the end of the message.
    };

    // One step; false: more text is needed.
    bool advance(std::vector<ChatEvent>& events);
    bool advance_header(std::vector<ChatEvent>& events);
    bool advance_text(std::vector<ChatEvent>& events);
    bool advance_call(std::vector<ChatEvent>& events);
    bool advance_arguments(std::vector<ChatEvent>& events);
    // Where the message ends; without a mark: its end has not come.
    FoundMark find_end();
    // Takes the message, and waits for the next header.
    void end_message(const FoundMark& end);
    // Text of the message.
    void say(ChatEvent::Kind kind, std::string_view text, std::vector<ChatEvent>& events);
    // Of what has come of a call: text behind its arguments is text of the message, too.
    void say_behind_call(std::span<ChatEvent> events);
    // What was held of a message that is a call, which ended with `end`.
    void add_call(std::string_view arguments, std::string_view end, std::vector<ChatEvent>& events);

    const bool reads_calls_;
    const bool says_one_;  // The first message that is said has no end.
    State state_ = State::kHeader;
    ChatEvent::Kind kind_ = ChatEvent::Kind::kContent;  // kText.
    std::optional<CallArguments> arguments_;            // kArguments.
    bool is_silent_ = true;                             // The message has no text so far.
    bool has_thought_ = false;                          // One had a thought,
    bool has_said_ = false;                             // and one something to say.
    std::string header_;    // Of a message that is a call, its mark included,
    std::string function_;  // and whom it is for.
    std::string pending_;
    size_t num_searched_ = 0;  // Bytes of a message in which its end does not begin.
};

}  // namespace afd::model
