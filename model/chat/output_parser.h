// SPDX-License-Identifier: Apache-2.0
#pragma once

// OutputParser: what a model says in a chat, told apart while it comes: what it thinks, what it
// says, and calls of tools.
//
// Events depend on the text alone: whatever parts it comes in, they are the same, but for how a run
// of one kind of text, or the arguments of a call, are cut. Text that may become a mark (<think>,
// <tool_call>) is held back, and so are blanks and line breaks beside a mark, which belong to it
// and not to the text. Text costs what its bytes do, however long it is held back.
//
// A call whose arguments are JSON in the text is told as soon as their brace opens, if that is in
// its first 1024 bytes; its arguments, as they are written, as they come. What follows decides no
// more whether it is a call: if they break, or the text ends, it has those that came. Any other
// call is told when it is whole and its arguments are a JSON object (blank ones are an empty one).
// A value that is bare text and has no end has one where its call ends and the next one begins.
// What looks like a call and cannot be read is content, marks included. Of an answer that must be a
// call (OutputSyntax::must_call) what was cut is none: it is a call if its name has come.
//
// By which marks calls are found: call_syntax.h. Some of them, and those of channels, are special
// tokens: ask for them (Generate.keep_special_tokens).

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/call/call_arguments.h"
#include "model/chat/call/call_syntax.h"
#include "model/chat/channel_parser.h"
#include "model/chat/message/chat_event.h"
#include "model/chat/template/chat_template.h"

namespace afd::model {

class OutputParser {
  public:
    explicit OutputParser(const OutputSyntax& syntax);

    // What is certain after more of the text.
    std::vector<ChatEvent> append(std::string_view text);

    // The rest, at the end of the text. `was_cut`: the model had not ended it.
    std::vector<ChatEvent> finish(bool was_cut = false);

  private:
    enum class State {
        kStart,         // Only blanks so far, and <think> may come.
        kThoughtStart,  // Blanks in front of a thought: not thought.
        kReasoning,     // Until </think>.
        kBehind,        // Blanks behind a thought or a call: not said.
        kContent,
        kCall,       // Until the arguments of a call begin, or to its end.
        kArguments,  // From arguments that are told while they come to the end of the call.
        kBetween,    // Of a row of calls: behind one, before the next or the end of the row.
    };

    void enter(State state);
    // One step; false: more text is needed.
    bool advance(std::vector<ChatEvent>& events);
    std::string_view skip_blanks(std::string_view blanks);
    bool advance_start();
    bool advance_blanks(State next);
    bool advance_text(ChatEvent::Kind kind,
                      std::string_view mark,
                      State next,
                      std::vector<ChatEvent>& events);
    bool advance_call(std::vector<ChatEvent>& events);
    bool advance_arguments(std::vector<ChatEvent>& events);
    bool advance_between();
    // Tells the call in the first `size` bytes of `pending_` if its arguments have begun.
    bool begin_arguments(size_t size, std::vector<ChatEvent>& events);
    // Of the call in `text`.
    CallHead head_in(std::string_view text) const;
    void finish_call(std::vector<ChatEvent>& events);
    // Where the call ends in `pending_`; npos: its end has not come.
    size_t find_call_end();
    // Learns from the marks in a `part` of the call, up to an end mark, what stands at its end.
    void read_marks(std::string_view part);
    // Whether the end mark behind `body` is that of the call, and no part of a value.
    bool closes_call(std::string_view body) const;
    bool add_call(std::string_view body, std::vector<ChatEvent>& events) const;
    // `body` as it was written.
    std::string unread_call(std::string_view body, std::string_view end) const;

    const std::shared_ptr<const ParameterTypes> types_;
    const CallSyntax* calls_ = nullptr;  // Null: no calls are read.
    const bool must_call_;
    const bool follows_thought_;             // The prompt has ended with one.
    std::optional<ChannelParser> channels_;  // Reads all, where it is there.
    State state_ = State::kContent;
    std::string pending_;
    // Bytes of it that more text need not be looked for in again: none begins what the state waits
    // for, and before a text they are blank.
    size_t num_searched_ = 0;
    bool has_call_ = false;
    std::optional<CallArguments> arguments_;  // kArguments.
    // kCall:
    bool follows_call_ = false;   // It is not the first one of its row.
    size_t num_read_ = 0;         // Bytes of it whose marks were read, up to an end mark:
    bool has_parameter_ = false;  // it has one,
    bool is_in_value_ = false;    // and behind the last one neither a value ends nor a call begins.
    // An end mark in such a value. It ends the call if the next one follows: a model that leaves
    // out the end of a value would have one call of two. npos: there is none.
    size_t broken_end_ = std::string::npos;
};

}  // namespace afd::model
