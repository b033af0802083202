// SPDX-License-Identifier: Apache-2.0
#pragma once

// JSON as the templates of checkpoints write it: the filter tojson, which is Python's json.dumps
// with ensure_ascii=False: a blank behind each comma and colon, keys in their order.

#include <string>
#include <string_view>

#include "proto/status.h"

namespace afd::model {

// `text` written so. Errors: kInvalidArgument, beginning with `what`: no JSON, or beyond a limit of
// ordered_json.h.
Result<std::string> spaced_json(const std::string& text, const std::string& what);

// The function of a tool, as templates show its parts.
struct ToolFunction {
    std::string name;
    std::string description;
    std::string parameters;  // Spaced JSON.
};
// Errors: kInvalidArgument, beginning with `what`.
Result<ToolFunction> tool_function(const std::string& text, const std::string& what);

// The arguments of a call as a model has written them, without blanks around; of blank ones "{}".
// What this takes every template renders again. Errors: kInvalidArgument: no JSON object, or beyond
// a limit of ordered_json.h.
Result<std::string> call_arguments(std::string_view text);

// A call as {"name": ..., "arguments": ...}; the arguments as spaced JSON, or, if they are a text,
// as it is. Errors: kInvalidArgument: no such object, or as call_arguments().
struct JsonCall {
    std::string name;
    std::string arguments;
};
Result<JsonCall> json_call(const std::string& text);

}  // namespace afd::model
