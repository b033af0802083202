// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call_syntax.h"
#include "model/chat/chat_json.h"

namespace afd::model {
namespace {

std::optional<ChatEvent> read_json_call(std::string_view body, const ParameterTypes& /*types*/) {
    const auto call = json_call(std::string(body));
    if (!call.ok()) return std::nullopt;
    return called(call.value().name, call.value().arguments);
}

}  // namespace

const CallSyntax& json_calls() {
    static constexpr CallSyntax kSyntax{.begin = "<tool_call>",
                                        .end = "</tool_call>",
                                        .closes_itself = true,
                                        .read = read_json_call};
    return kSyntax;
}

}  // namespace afd::model
