// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/call_syntax.h"

#include "model/chat/message/chat_json.h"
#include "model/chat/message/chat_text.h"

namespace afd::model {

const CallSyntax* call_syntax(ToolSyntax syntax) {
    switch (syntax) {
        case ToolSyntax::kNone:
        case ToolSyntax::kHarmony:
            return nullptr;
        case ToolSyntax::kJson:
            return &json_calls();
        case ToolSyntax::kDeepSeekV3:
            return &deepseek_v3_calls();
        case ToolSyntax::kDeepSeekV31:
            return &deepseek_v31_calls();
        case ToolSyntax::kQwenCoder:
            return &qwen_coder_calls();
        case ToolSyntax::kGlm:
            return &glm_calls();
        case ToolSyntax::kKimi:
            return &kimi_calls();
        case ToolSyntax::kMiniMax:
            return &minimax_calls();
    }
    return nullptr;
}

CallHead head_of(std::string_view body, std::string_view name, size_t behind) {
    CallHead head{std::string(strip(name))};
    const std::string_view arguments = strip_left(body.substr(behind));
    if (!head.name.empty() && arguments.starts_with('{')) {
        head.arguments = body.size() - arguments.size();
    }
    return head;
}

std::optional<ChatEvent> called(std::string_view name, std::string_view arguments) {
    const Result<std::string> read = call_arguments(arguments);
    const std::string_view stripped = strip(name);
    if (!read.ok() || stripped.empty()) return std::nullopt;
    return ChatEvent{ChatEvent::Kind::kToolCall, read.value(), std::string(stripped), true};
}

}  // namespace afd::model
