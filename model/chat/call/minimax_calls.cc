// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/call_parameters.h"
#include "model/chat/call/call_syntax.h"

namespace afd::model {
namespace {

constexpr std::string_view kNamedParameter = "<parameter name=\"";
constexpr std::string_view kNamedParameterEnd = "</parameter>";
constexpr std::string_view kNameClosed = "\">";

// Behind <invoke name=": the name, then parameters.
std::optional<ChatEvent> read_minimax_call(std::string_view body, const ParameterTypes& types) {
    constexpr ParameterMarks kMarks{
        .begin = kNamedParameter, .name_end = kNameClosed, .value_end = kNamedParameterEnd};
    const size_t name_end = body.find(kNameClosed);
    if (name_end == std::string_view::npos) return std::nullopt;
    const std::string_view parameters = body.substr(name_end + kNameClosed.size());
    return read_parameter_call(body.substr(0, name_end), parameters, kMarks, types);
}

}  // namespace

const CallSyntax& minimax_calls() {
    static constexpr CallSyntax kSyntax{.begin = "<minimax:tool_call>",
                                        .end = "</invoke>",
                                        .next = "<invoke name=\"",
                                        .last = "</minimax:tool_call>",
                                        .parameter = kNamedParameter,
                                        .closers = {kNamedParameterEnd},
                                        .read = read_minimax_call};
    return kSyntax;
}

}  // namespace afd::model
