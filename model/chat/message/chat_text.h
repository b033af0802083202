// SPDX-License-Identifier: Apache-2.0
#pragma once

// What templates do with the texts of messages, as the functions of those names in Python do.

#include <span>
#include <string>
#include <string_view>

#include "model/chat/message/chat_message.h"
#include "proto/status.h"

namespace afd::model {

// Blanks and line breaks between the parts of an answer.
inline constexpr std::string_view kBlanks = " \t\n\r";

// `text` without characters of `set` at its end, at its start, at both.
std::string_view strip_right(std::string_view text, std::string_view set = " \t\n\r\v\f");
std::string_view strip_left(std::string_view text, std::string_view set = " \t\n\r\v\f");
std::string_view strip(std::string_view text);

// Bytes at the end of `text` that may become `mark`, all of it excluded.
size_t num_held(std::string_view text, std::string_view mark);
// The same of any of `marks`.
size_t num_held(std::string_view text, std::span<const std::string_view> marks);

// The first of `marks` in `text` that begins at `from` or behind it.
struct FoundMark {
    size_t at = std::string_view::npos;  // There is none.
    std::string_view mark = {};
};
FoundMark first_mark(std::string_view text, std::span<const std::string_view> marks, size_t from);

// What of a text that still comes may be said: not what may become a mark, nor blanks and line
// breaks, which belong to a mark behind them.
struct Sayable {
    size_t num_said = 0;  // Bytes.
    FoundMark end = {};   // The mark behind them, and the blanks in between.
};
// Of `text`, up to the first of `marks`. `num_searched`: its bytes that are blank, and no mark,
// which are not looked at again; becomes that of the text behind what is said.
Sayable sayable(std::string_view text,
                std::span<const std::string_view> marks,
                size_t& num_searched);

// An answer in a conversation: what it thought, if that stands in front of it or was given, and
// what it said.
struct Answer {
    std::string reasoning;
    std::string content;
};
Answer split_reasoning(const ChatMessage& message);

// The index of the last message of a user that is one; -1: none.
int last_user_index(const Conversation& conversation);
// The same of the last answer that calls no tool.
int last_plain_answer(const Conversation& conversation);

// For a template without a place for tools. Errors: kUnimplemented.
Result<> refuse_tools(const Conversation& conversation, std::string_view template_name);
// For one that shows a result as that of the answer before it. Errors: kInvalidArgument: that
// answer has called nothing.
Result<> refuse_results_without_calls(const Conversation& conversation,
                                      std::string_view template_name);
// For one that has a place for a system message only at the start. Errors: kInvalidArgument.
Result<> refuse_later_systems(const Conversation& conversation, std::string_view template_name);

}  // namespace afd::model
