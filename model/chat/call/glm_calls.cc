// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "model/chat/call/call_parameters.h"
#include "model/chat/call/call_syntax.h"
#include "model/chat/message/chat_text.h"

namespace afd::model {
namespace {

constexpr std::string_view kKey = "<arg_key>";
constexpr std::string_view kValueEnd = "</arg_value>";

// The name, on a line of its own or not, then the arguments.
std::optional<ChatEvent> read_glm_call(std::string_view body, const ParameterTypes& types) {
    constexpr ParameterMarks kMarks{.begin = kKey,
                                    .name_end = "</arg_key>",
                                    .value_begin = "<arg_value>",
                                    .value_end = kValueEnd};
    body = strip(body);
    const size_t name_end = std::min(body.find('\n'), body.find(kKey));
    const std::string_view name = body.substr(0, name_end);
    // Any text may stand there; JSON of another model's form, for example.
    if (name.find_first_of(" {") != std::string_view::npos) return std::nullopt;
    return read_parameter_call(name, body.substr(name.size()), kMarks, types);
}

}  // namespace

const CallSyntax& glm_calls() {
    // Without its end nobody knows whether more arguments were to come.
    static constexpr CallSyntax kSyntax{.begin = "<tool_call>",
                                        .end = "</tool_call>",
                                        .parameter = kKey,
                                        .closers = {kValueEnd},
                                        .read = read_glm_call};
    return kSyntax;
}

}  // namespace afd::model
