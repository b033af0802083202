// SPDX-License-Identifier: Apache-2.0
#pragma once

// CallForm: how a model writes a call of one function; what it has written is read by
// output_parser.h.

#include <string_view>
#include <vector>

namespace afd::model {

enum class ToolSyntax {
    kNone,
    kJson,        // <tool_call>{"name": ..., "arguments": ...}</tool_call>
    kDeepSeekV3,  // <｜tool▁calls▁begin｜>, type, name and a block of JSON
    kDeepSeekV31  // <｜tool▁calls▁begin｜>, name and JSON
};

// A piece of such a call. A mark is a special token where the vocabulary has one of its text.
struct CallPart {
    std::string_view text;
    bool is_mark = false;
};

struct CallForm {
    std::vector<CallPart> before;   // The name.
    std::vector<CallPart> between;  // It and the arguments, as JSON.
    std::vector<CallPart> behind;   // Them.
};

// REQUIRES: not kNone.
CallForm call_form(ToolSyntax syntax);

}  // namespace afd::model
