// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/call_syntax.h"
#include "model/chat/message/chat_json.h"
#include "model/chat/message/chat_text.h"

namespace afd::model {
namespace {

std::optional<ChatEvent> read_json_call(std::string_view body, const ParameterTypes& /*types*/) {
    const auto call = json_call(std::string(body));
    if (!call.ok()) return std::nullopt;
    return called(call.value().name, call.value().arguments);
}

// What is in front of the value of the next member, of which `name` is the name.
bool take_member(std::string_view opening, std::string_view name, std::string_view& text) {
    constexpr std::string_view kJsonBlanks = " \t\n\r";
    for (const std::string_view token : {opening, name, std::string_view(":")}) {
        text = strip_left(text, kJsonBlanks);
        if (!text.starts_with(token)) return false;
        text.remove_prefix(token.size());
    }
    text = strip_left(text, kJsonBlanks);
    return true;
}

// Of the members in the order in which models are shown them. A name with escapes is read when the
// call is whole.
CallHead json_head(std::string_view body) {
    std::string_view rest = body;
    if (!take_member("{", "\"name\"", rest) || !rest.starts_with('"')) return {};
    rest.remove_prefix(1);
    const size_t end = rest.find_first_of("\"\\\n");
    if (end == std::string_view::npos || rest[end] != '"') return {};
    const std::string_view name = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    const bool has_arguments = take_member(",", "\"arguments\"", rest);
    return head_of(body, name, has_arguments ? body.size() - rest.size() : body.size());
}

}  // namespace

const CallSyntax& json_calls() {
    static constexpr CallSyntax kSyntax{.begin = "<tool_call>",
                                        .end = "</tool_call>",
                                        .arguments_end = "}",
                                        .closes_itself = true,
                                        .read = read_json_call,
                                        .read_head = json_head};
    return kSyntax;
}

}  // namespace afd::model
