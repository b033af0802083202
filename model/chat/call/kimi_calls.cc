// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "model/chat/call/call_syntax.h"
#include "model/chat/message/chat_text.h"

namespace afd::model {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

constexpr std::string_view kIdEnd = "<|tool_call_argument_begin|>";

// Of an id, functions.NAME:INDEX, the name alone counts.
std::string_view name_in(std::string_view id) {
    constexpr std::string_view kNamespace = "functions.";
    std::string_view name = strip(id);
    if (name.starts_with(kNamespace)) name.remove_prefix(kNamespace.size());
    const size_t colon = name.rfind(':');
    if (colon == std::string_view::npos) return name;
    const std::string_view index = name.substr(colon + 1);
    return std::ranges::all_of(index, is_digit) ? name.substr(0, colon) : name;
}

// An id, then JSON.
std::optional<ChatEvent> read_kimi_call(std::string_view body, const ParameterTypes& /*types*/) {
    const size_t id_end = body.find(kIdEnd);
    if (id_end == std::string_view::npos) return std::nullopt;
    return called(name_in(body.substr(0, id_end)), body.substr(id_end + kIdEnd.size()));
}

CallHead kimi_head(std::string_view body) {
    const size_t id_end = body.find(kIdEnd);
    if (id_end == std::string_view::npos) return {};
    return head_of(body, name_in(body.substr(0, id_end)), id_end + kIdEnd.size());
}

}  // namespace

const CallSyntax& kimi_calls() {
    static constexpr CallSyntax kSyntax{.begin = "<|tool_calls_section_begin|>",
                                        .end = "<|tool_call_end|>",
                                        .next = "<|tool_call_begin|>",
                                        .last = "<|tool_calls_section_end|>",
                                        .read = read_kimi_call,
                                        .read_head = kimi_head};
    return kSyntax;
}

}  // namespace afd::model
