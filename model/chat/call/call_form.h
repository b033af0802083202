// SPDX-License-Identifier: Apache-2.0
#pragma once

// CallForm: how a model writes a call of one function with arguments in JSON, for a grammar that
// makes it write one; what it has written is read by output_parser.h.

#include <optional>
#include <string_view>
#include <vector>

namespace afd::model {

// The numbers go from one afdd to the next: new ones come last.
enum class ToolSyntax {
    kNone,
    kJson,         // <tool_call>{"name": ..., "arguments": ...}</tool_call>
    kDeepSeekV3,   // <｜tool▁calls▁begin｜>, type, name and a block of JSON
    kDeepSeekV31,  // <｜tool▁calls▁begin｜>, name and JSON
    kQwenCoder,    // <tool_call><function=...><parameter=...>
    kGlm,          // <tool_call>, name, <arg_key>, <arg_value>
    kKimi,         // <|tool_calls_section_begin|>, functions.NAME:INDEX and JSON
    kMiniMax,      // <minimax:tool_call><invoke name=...><parameter name=...>
    kHarmony,      // Messages to=functions.NAME (channel_parser.h).
};

inline constexpr ToolSyntax kToolSyntaxLast = ToolSyntax::kHarmony;

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

// Nothing: there are no calls, or their arguments are not JSON.
std::optional<CallForm> call_form(ToolSyntax syntax);

}  // namespace afd::model
