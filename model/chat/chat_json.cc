// SPDX-License-Identifier: Apache-2.0
#include "model/chat/chat_json.h"

#include <nlohmann/json.hpp>

#include "model/chat/chat_text.h"
#include "model/json/ordered_json.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string text_member(const OrderedJson& object, const char* key) {
    const auto at = object.find(key);
    return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

}  // namespace

Result<std::string> spaced_json(const std::string& text, const std::string& what) {
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, what));
    return spaced_text(json);
}

Result<ToolFunction> tool_function(const std::string& text, const std::string& what) {
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, what));
    const auto at = json.is_object() ? json.find("function") : json.end();
    if (!json.is_object() || at == json.end() || !at->is_object()) {
        return invalid_argument("{} has no object \"function\"", with(what));
    }
    ToolFunction function{text_member(*at, "name"), text_member(*at, "description"), "{}"};
    if (function.name.empty()) {
        return invalid_argument("{}: its function has no name", with(what));
    }
    const auto parameters = at->find("parameters");
    if (parameters != at->end()) function.parameters = spaced_text(*parameters);
    return function;
}

Result<std::string> call_arguments(std::string_view text) {
    text = strip(text);
    if (text.empty()) return std::string("{}");
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, "arguments"));
    if (json.is_object()) return std::string(text);
    return invalid_argument("arguments are no object");
}

Result<JsonCall> json_call(const std::string& text) {
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, "the call"));
    const auto arguments = json.is_object() ? json.find("arguments") : json.end();
    JsonCall call{json.is_object() ? text_member(json, "name") : std::string(), {}};
    if (call.name.empty() || arguments == json.end()) {
        return invalid_argument("the call has no name or no arguments");
    }
    const std::string written =
        arguments->is_string() ? arguments->get<std::string>() : spaced_text(*arguments);
    AFD_ASSIGN(call.arguments, call_arguments(written));
    return call;
}

}  // namespace afd::model
