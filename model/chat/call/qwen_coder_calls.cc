// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/call_parameters.h"
#include "model/chat/call/call_syntax.h"
#include "model/chat/message/chat_text.h"

namespace afd::model {
namespace {

constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::string_view kFunctionEnd = "</function>";

// <function=NAME>, parameters, </function>.
std::optional<ChatEvent> read_qwen_coder(std::string_view body, const ParameterTypes& types) {
    constexpr std::string_view kFunction = "<function=";
    constexpr ParameterMarks kMarks{
        .begin = kParameter, .name_end = ">", .value_end = kParameterEnd, .has_lines = true};
    body = strip(body);
    if (!body.starts_with(kFunction) || !body.ends_with(kFunctionEnd)) return std::nullopt;
    body = body.substr(kFunction.size(), body.size() - kFunction.size() - kFunctionEnd.size());
    const size_t name_end = body.find('>');
    if (name_end == std::string_view::npos) return std::nullopt;
    const std::string_view parameters = body.substr(name_end + 1);
    return read_parameter_call(body.substr(0, name_end), parameters, kMarks, types);
}

}  // namespace

const CallSyntax& qwen_coder_calls() {
    static constexpr CallSyntax kSyntax{.begin = "<tool_call>",
                                        .end = "</tool_call>",
                                        .parameter = kParameter,
                                        .closers = {kParameterEnd, kFunctionEnd},
                                        .closes_itself = true,
                                        .read = read_qwen_coder};
    return kSyntax;
}

}  // namespace afd::model
