// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call_form.h"

#include "proto/check.h"

namespace afd::model {

CallForm call_form(ToolSyntax syntax) {
    AFD_ASSERT(syntax != ToolSyntax::kNone, "a model without calls");
    if (syntax == ToolSyntax::kJson) {
        return {.before = {{"<tool_call>", true}, {"\n{\"name\": \""}},
                .between = {{"\", \"arguments\": "}},
                .behind = {{"}\n"}, {"</tool_call>", true}}};
    }
    const bool has_type = syntax == ToolSyntax::kDeepSeekV3;
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

}  // namespace afd::model
