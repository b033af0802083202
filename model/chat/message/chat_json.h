// SPDX-License-Identifier: Apache-2.0
#pragma once

// JSON as the templates of checkpoints write it: the filter tojson, which is Python's json.dumps
// with ensure_ascii=False: a blank behind each comma and colon, keys in their order.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/message/chat_message.h"
#include "proto/status.h"

namespace afd::model {

// `text` written so. Errors: kInvalidArgument, beginning with `what`: no JSON, or beyond a limit of
// ordered_json.h.
Result<std::string> spaced_json(const std::string& text, const std::string& what);
// The same without blanks: tojson(separators=(',', ':')).
Result<std::string> compact_json(const std::string& text, const std::string& what);

// The function of a tool, as templates show its parts.
struct ToolFunction {
    std::string name;
    std::string description;
    std::string parameters;  // Spaced JSON.
};
// Errors: kInvalidArgument, beginning with `what`.
Result<ToolFunction> tool_function(const std::string& text, const std::string& what);
// All of it, which is an object with a name, as it is and as spaced JSON. Errors: the same.
Result<nlohmann::ordered_json> function_json(const std::string& text, const std::string& what);
Result<std::string> spaced_function(const std::string& text, const std::string& what);

// The arguments of a call as a model has written them, without blanks around; of blank ones "{}".
// What this takes every template renders again. Errors: kInvalidArgument: no JSON object, or beyond
// a limit of ordered_json.h.
Result<std::string> call_arguments(std::string_view text);

// An argument of a call, for templates that write them one by one.
struct Argument {
    std::string name;
    std::string text;  // Of a string what it says, of any other value spaced JSON.
    bool is_string = false;
};
// Those of call `call` of `message`, which is messages[index]. Errors: kInvalidArgument, beginning
// with that place: no JSON object, or beyond a limit of ordered_json.h.
Result<std::vector<Argument>> arguments_of(const ChatMessage& message, size_t index, size_t call);
// All of them, as spaced JSON.
Result<std::string> spaced_arguments(const ChatMessage& message, size_t index, size_t call);

// What the filter `string` makes of a value: Python's words for true, false and null; of a string
// what it says; anything else as spaced JSON. The second is for a value that is JSON already.
std::string python_text(const nlohmann::ordered_json& value);
std::string_view python_word(std::string_view json);

// A call as {"name": ..., "arguments": ...}; the arguments as spaced JSON, or, if they are a text,
// as it is. Errors: kInvalidArgument: no such object, or as call_arguments().
struct JsonCall {
    std::string name;
    std::string arguments;
};
Result<JsonCall> json_call(const std::string& text);

}  // namespace afd::model
