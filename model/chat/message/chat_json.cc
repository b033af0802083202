// SPDX-License-Identifier: Apache-2.0
#include "model/chat/message/chat_json.h"

#include <nlohmann/json.hpp>

#include "model/chat/message/chat_text.h"
#include "model/json/ordered_json.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string text_member(const OrderedJson& object, const char* key) {
    const auto at = object.find(key);
    return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

// Those of call `call` of `message`, which is messages[index].
Result<OrderedJson> read_arguments(const ChatMessage& message, size_t index, size_t call) {
    const std::string place =
        fmt::format("messages[{}].tool_calls[{}].function.arguments", index, call);
    AFD_ASSIGN(OrderedJson json, parse_ordered_json(message.tool_calls[call].arguments, place));
    if (json.is_object()) return json;
    return invalid_argument("{} is no JSON object", with(place));
}

}  // namespace

Result<std::string> spaced_json(const std::string& text, const std::string& what) {
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, what));
    return spaced_text(json);
}

Result<std::string> compact_json(const std::string& text, const std::string& what) {
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, what));
    return compact_text(json);
}

Result<OrderedJson> function_json(const std::string& text, const std::string& what) {
    AFD_ASSIGN(OrderedJson json, parse_ordered_json(text, what));
    const auto at = json.is_object() ? json.find("function") : json.end();
    if (!json.is_object() || at == json.end() || !at->is_object()) {
        return invalid_argument("{} has no object \"function\"", with(what));
    }
    if (text_member(*at, "name").empty()) {
        return invalid_argument("{}: its function has no name", with(what));
    }
    return std::move(*at);
}

Result<ToolFunction> tool_function(const std::string& text, const std::string& what) {
    AFD_ASSIGN(const OrderedJson json, function_json(text, what));
    ToolFunction function{text_member(json, "name"), text_member(json, "description"), "{}"};
    const auto parameters = json.find("parameters");
    if (parameters != json.end()) function.parameters = spaced_text(*parameters);
    return function;
}

Result<std::string> spaced_function(const std::string& text, const std::string& what) {
    AFD_ASSIGN(const OrderedJson json, function_json(text, what));
    return spaced_text(json);
}

Result<std::string> call_arguments(std::string_view text) {
    text = strip(text);
    if (text.empty()) return std::string("{}");
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, "arguments"));
    if (json.is_object()) return std::string(text);
    return invalid_argument("arguments are no object");
}

Result<std::string> spaced_arguments(const ChatMessage& message, size_t index, size_t call) {
    AFD_ASSIGN(const OrderedJson json, read_arguments(message, index, call));
    return spaced_text(json);
}

Result<std::vector<Argument>> arguments_of(const ChatMessage& message, size_t index, size_t call) {
    AFD_ASSIGN(const OrderedJson json, read_arguments(message, index, call));
    std::vector<Argument> arguments;
    for (const auto& [name, value] : json.items()) {
        const bool is_string = value.is_string();
        arguments.push_back(
            {name, is_string ? value.get<std::string>() : spaced_text(value), is_string});
    }
    return arguments;
}

std::string python_text(const nlohmann::ordered_json& value) {
    if (value.is_string()) return value.get<std::string>();
    return std::string(python_word(spaced_text(value)));
}

std::string_view python_word(std::string_view json) {
    if (json == "true") return "True";
    if (json == "false") return "False";
    return json == "null" ? "None" : json;
}

Result<JsonCall> json_call(const std::string& text) {
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, "the call"));
    const auto arguments = json.is_object() ? json.find("arguments") : json.end();
    JsonCall call{json.is_object() ? text_member(json, "name") : std::string(), {}};
    if (call.name.empty() || arguments == json.end()) {
        return invalid_argument("the call has no name or no arguments");
    }
    if (arguments->is_object()) {
        call.arguments = spaced_text(*arguments);
        return call;
    }
    if (!arguments->is_string()) return invalid_argument("arguments are no object");
    AFD_ASSIGN(call.arguments, call_arguments(arguments->get_ref<const std::string&>()));
    return call;
}

}  // namespace afd::model
