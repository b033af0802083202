// SPDX-License-Identifier: Apache-2.0
#include "model/chat/message/chat_message.h"

namespace afd::model {

std::string_view name_of(ChatRole role) {
    switch (role) {
        case ChatRole::kSystem:
            return "system";
        case ChatRole::kUser:
            return "user";
        case ChatRole::kAssistant:
            return "assistant";
        case ChatRole::kTool:
            return "tool";
    }
    return "";
}

std::optional<ChatRole> chat_role(std::string_view name) {
    if (name == "developer") return ChatRole::kSystem;
    for (const ChatRole role :
         {ChatRole::kSystem, ChatRole::kUser, ChatRole::kAssistant, ChatRole::kTool}) {
        if (name == name_of(role)) return role;
    }
    return std::nullopt;
}

}  // namespace afd::model
