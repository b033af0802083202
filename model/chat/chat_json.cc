// SPDX-License-Identifier: Apache-2.0
#include "model/chat/chat_json.h"

#include <nlohmann/json.hpp>

#include "model/chat/ordered_json.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using OrderedJson = nlohmann::ordered_json;

void write(const OrderedJson& json, std::string& out) {
    const bool is_object = json.is_object();
    if (!is_object && !json.is_array()) {
        out += json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
        return;
    }
    out += is_object ? '{' : '[';
    bool is_first = true;
    for (const auto& [key, value] : json.items()) {
        if (!is_first) out += ", ";
        is_first = false;
        if (is_object) out += OrderedJson(key).dump() + ": ";
        write(value, out);
    }
    out += is_object ? '}' : ']';
}

std::string spaced(const OrderedJson& json) {
    std::string out;
    write(json, out);
    return out;
}

std::string text_member(const OrderedJson& object, const char* key) {
    const auto at = object.find(key);
    return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

}  // namespace

Result<std::string> spaced_json(const std::string& text, const std::string& what) {
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, what));
    return spaced(json);
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
    if (parameters != at->end()) function.parameters = spaced(*parameters);
    return function;
}

Result<JsonCall> json_call(const std::string& text) {
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, "the call"));
    const auto arguments = json.is_object() ? json.find("arguments") : json.end();
    JsonCall call{json.is_object() ? text_member(json, "name") : std::string(), {}};
    if (call.name.empty() || arguments == json.end()) {
        return invalid_argument("the call has no name or no arguments");
    }
    call.arguments = arguments->is_string() ? arguments->get<std::string>() : spaced(*arguments);
    return call;
}

}  // namespace afd::model
