// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "model/chat/call_syntax.h"
#include "model/chat/chat_text.h"

namespace afd::model {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// An id, functions.NAME:INDEX, then JSON. Of the id the name alone counts.
std::optional<ChatEvent> read_kimi_call(std::string_view body, const ParameterTypes& /*types*/) {
    constexpr std::string_view kIdEnd = "<|tool_call_argument_begin|>";
    constexpr std::string_view kNamespace = "functions.";
    const size_t id_end = body.find(kIdEnd);
    if (id_end == std::string_view::npos) return std::nullopt;
    std::string_view name = strip(body.substr(0, id_end));
    if (name.starts_with(kNamespace)) name.remove_prefix(kNamespace.size());
    const size_t colon = name.rfind(':');
    if (colon != std::string_view::npos) {
        const std::string_view index = name.substr(colon + 1);
        if (std::ranges::all_of(index, is_digit)) name = name.substr(0, colon);
    }
    return called(name, body.substr(id_end + kIdEnd.size()));
}

}  // namespace

const CallSyntax& kimi_calls() {
    static constexpr CallSyntax kSyntax{.begin = "<|tool_calls_section_begin|>",
                                        .end = "<|tool_call_end|>",
                                        .next = "<|tool_call_begin|>",
                                        .last = "<|tool_calls_section_end|>",
                                        .read = read_kimi_call};
    return kSyntax;
}

}  // namespace afd::model
