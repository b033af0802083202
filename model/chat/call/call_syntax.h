// SPDX-License-Identifier: Apache-2.0
#pragma once

// CallSyntax: by what marks the calls of a family of models are found in what one says, and how one
// call is read. Each family has a source of its own; those of gpt-oss are messages, which
// channel_parser.h reads.

#include <array>
#include <optional>
#include <string_view>

#include "model/chat/call/call_form.h"
#include "model/chat/call/parameter_types.h"
#include "model/chat/message/chat_event.h"

namespace afd::model {

// How a call begins whose arguments are JSON in the text.
struct CallHead {
    std::string name = {};                      // Of the function; empty: it has not come.
    size_t arguments = std::string_view::npos;  // Where their brace opens; npos: as yet nowhere.
};

struct CallSyntax {
    std::string_view begin;  // In front of a call; with `next`, in front of a row of calls.
    std::string_view end;    // Behind a call.
    // Where calls stand in a row: in front of each of them, and behind the last one.
    std::string_view next = {};
    std::string_view last = {};
    // In front of each parameter, where values are bare text, in which `end` may stand, too: in a
    // call with parameters it counts only behind `closers`, with nothing but blanks between. The
    // first of them ends a value.
    std::string_view parameter = {};
    std::array<std::string_view, 2> closers = {};
    // Between arguments that are JSON in the text and `end`. A brace is that of an object that the
    // call is, which may have more members.
    std::string_view arguments_end = {};
    bool closes_itself = false;  // Whether a call is whole can be told without `end`.
    // What stands between `begin`, or `next`, and `end`. Nothing: it cannot be read as a call.
    std::optional<ChatEvent> (*read)(std::string_view body, const ParameterTypes& types) = nullptr;
    // The same as far as it has come, so that a call is told while its arguments come. Once there
    // are arguments, more text changes nothing. Null: a call is told when it is whole.
    CallHead (*read_head)(std::string_view body) = nullptr;
};

// Null: calls are no part of the text, or messages of their own.
const CallSyntax* call_syntax(ToolSyntax syntax);

const CallSyntax& json_calls();         // json_calls.cc: Qwen.
const CallSyntax& deepseek_v3_calls();  // deepseek_calls.cc.
const CallSyntax& deepseek_v31_calls();
const CallSyntax& qwen_coder_calls();  // qwen_coder_calls.cc.
const CallSyntax& glm_calls();         // glm_calls.cc.
const CallSyntax& kimi_calls();        // kimi_calls.cc.
const CallSyntax& minimax_calls();     // minimax_calls.cc.

// The head with `name`, where the arguments follow at `behind` in `body`.
CallHead head_of(std::string_view body, std::string_view name, size_t behind);

// The whole call of `name` with `arguments`, JSON; nothing: there is no name, or the arguments are
// no object (chat_json.h).
std::optional<ChatEvent> called(std::string_view name, std::string_view arguments);

}  // namespace afd::model
