// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/call_form.h"

namespace afd::model {
namespace {

CallForm deepseek_form(bool has_type) {
    CallForm form{.before = {{"<｜tool▁calls▁begin｜>", true}, {"<｜tool▁call▁begin｜>", true}},
                  .between = {},
                  .behind = {{"<｜tool▁call▁end｜>", true}, {"<｜tool▁calls▁end｜>", true}}};
    if (has_type) {
        form.before.insert(form.before.end(), {{"function"}, {"<｜tool▁sep｜>", true}});
        form.between = {{"\n```json\n"}};
        form.behind.insert(form.behind.begin(), {"\n```"});
    } else {
        form.between = {{"<｜tool▁sep｜>", true}};
    }
    return form;
}

// The index is that of a first call, also where there were others.
CallForm kimi_form() {
    return {.before = {{"<|tool_calls_section_begin|>", true},
                       {"<|tool_call_begin|>", true},
                       {"functions."}},
            .between = {{":0"}, {"<|tool_call_argument_begin|>", true}},
            .behind = {{"<|tool_call_end|>", true}, {"<|tool_calls_section_end|>", true}}};
}

}  // namespace

std::optional<CallForm> call_form(ToolSyntax syntax) {
    switch (syntax) {
        case ToolSyntax::kJson:
            return CallForm{.before = {{"<tool_call>", true}, {"\n{\"name\": \""}},
                            .between = {{"\", \"arguments\": "}},
                            .behind = {{"}\n"}, {"</tool_call>", true}}};
        case ToolSyntax::kDeepSeekV3:
            return deepseek_form(true);
        case ToolSyntax::kDeepSeekV31:
            return deepseek_form(false);
        case ToolSyntax::kKimi:
            return kimi_form();
        case ToolSyntax::kNone:
        case ToolSyntax::kQwenCoder:
        case ToolSyntax::kGlm:
        case ToolSyntax::kMiniMax:
        case ToolSyntax::kHarmony:
            return std::nullopt;
    }
    return std::nullopt;
}

}  // namespace afd::model
