// SPDX-License-Identifier: Apache-2.0
#pragma once

// A conversation as a chat template (chat_template.h) gets it: what the chat formats of the OpenAI
// API carry, without their wire format.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace afd::model {

enum class ChatRole { kSystem, kUser, kAssistant, kTool };

// "system", "user", "assistant", "tool".
std::string_view name_of(ChatRole role);
// "developer" is a system message, too. Nothing for what is no role.
std::optional<ChatRole> chat_role(std::string_view name);

// A call that the model has made.
struct ToolCall {
    std::string id;         // Of the API; most templates do not show it.
    std::string name;       // Of the function.
    std::string arguments;  // JSON text.
};

struct ChatMessage {
    ChatRole role = ChatRole::kUser;
    std::string content;
    std::string reasoning;             // kAssistant: what it thought; most templates drop it.
    std::vector<ToolCall> tool_calls;  // kAssistant.
    std::string tool_call_id;          // kTool: whose result it is.
};

struct Conversation {
    std::vector<ChatMessage> messages;  // Not empty.
    // Functions that the model may call: JSON texts, each as the API has it,
    // {"type":"function","function":{"name":...,"description":...,"parameters":...}}.
    std::vector<std::string> tools = {};
    // End with what makes the model answer.
    bool add_generation_prompt = true;
    // Whether the model shall think first, where it can be asked; absent: as it does by default.
    std::optional<bool> thinking = {};
    // How much, where it can be asked: "low", "medium" or "high"; empty: as it does by default.
    std::string effort = {};
    // The day that a template tells, as 2026-11-27; empty: today, where the process is.
    std::string date = {};
};

}  // namespace afd::model
