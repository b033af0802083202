// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChatEvent: a piece of what a model says in a chat.

#include <string>

namespace afd::model {

struct ChatEvent {
    enum class Kind {
        kReasoning,  // `text` is more of what it thinks.
        kContent,    // `text` is more of what it says.
        kToolCall,   // Of the function `name` with the arguments `text`, as JSON.
    };
    Kind kind = Kind::kContent;
    std::string text;
    std::string name = {};

    friend bool operator==(const ChatEvent&, const ChatEvent&) = default;
};

}  // namespace afd::model
