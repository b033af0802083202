// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChatEvent: a piece of what a model says in a chat.

#include <string>
#include <string_view>
#include <vector>

namespace afd::model {

struct ChatEvent {
    enum class Kind {
        kReasoning,  // `text` is more of what it thinks.
        kContent,    // `text` is more of what it says.
        kToolCall,  // A call of the function `name`; `text` is what came of its arguments, as JSON.
        kArguments,  // `text` is more of the arguments of the last call.
    };
    Kind kind = Kind::kContent;
    std::string text;
    std::string name = {};
    bool ends_call = false;  // Of a call: it has no more arguments.

    friend bool operator==(const ChatEvent&, const ChatEvent&) = default;
};

// Appends `text`, of a kind that is not kToolCall: to the last event if it is of this kind.
void add_text(ChatEvent::Kind kind, std::string_view text, std::vector<ChatEvent>& events);
// The last call has no more arguments: says so in the last event if it is of that call.
void end_call(std::vector<ChatEvent>& events);

}  // namespace afd::model
