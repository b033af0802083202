// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/call_syntax.h"

namespace afd::model {
namespace {

constexpr std::string_view kNameEnd = "<｜tool▁sep｜>";
constexpr std::string_view kJsonOpen = "```json\n";
constexpr std::string_view kJsonClose = "```";

// The type, the name, then the block of JSON that the format puts behind it.
std::optional<ChatEvent> read_deepseek_v3(std::string_view body, const ParameterTypes& /*types*/) {
    const size_t separator = body.find(kNameEnd);
    if (separator == std::string_view::npos) return std::nullopt;
    body.remove_prefix(separator + kNameEnd.size());
    const size_t open = body.find(kJsonOpen);
    const size_t close = body.rfind(kJsonClose);
    if (open == std::string_view::npos || close < open + kJsonOpen.size()) return std::nullopt;
    const size_t begin = open + kJsonOpen.size();
    return called(body.substr(0, open), body.substr(begin, close - begin));
}

// Its name, then JSON.
std::optional<ChatEvent> read_deepseek_v31(std::string_view body, const ParameterTypes& /*types*/) {
    const size_t separator = body.find(kNameEnd);
    if (separator == std::string_view::npos) return std::nullopt;
    return called(body.substr(0, separator), body.substr(separator + kNameEnd.size()));
}

CallHead deepseek_v3_head(std::string_view body) {
    const size_t separator = body.find(kNameEnd);
    if (separator == std::string_view::npos) return {};
    const size_t begin = separator + kNameEnd.size();
    const size_t open = body.find(kJsonOpen, begin);
    if (open == std::string_view::npos) return {};
    return head_of(body, body.substr(begin, open - begin), open + kJsonOpen.size());
}

CallHead deepseek_v31_head(std::string_view body) {
    const size_t separator = body.find(kNameEnd);
    if (separator == std::string_view::npos) return {};
    return head_of(body, body.substr(0, separator), separator + kNameEnd.size());
}

constexpr CallSyntax row_of(std::string_view arguments_end,
                            decltype(CallSyntax::read) read,
                            decltype(CallSyntax::read_head) read_head) {
    return {.begin = "<｜tool▁calls▁begin｜>",
            .end = "<｜tool▁call▁end｜>",
            .next = "<｜tool▁call▁begin｜>",
            .last = "<｜tool▁calls▁end｜>",
            .arguments_end = arguments_end,
            .read = read,
            .read_head = read_head};
}

}  // namespace

const CallSyntax& deepseek_v3_calls() {
    static constexpr CallSyntax kSyntax = row_of(kJsonClose, read_deepseek_v3, deepseek_v3_head);
    return kSyntax;
}

const CallSyntax& deepseek_v31_calls() {
    static constexpr CallSyntax kSyntax = row_of("", read_deepseek_v31, deepseek_v31_head);
    return kSyntax;
}

}  // namespace afd::model
