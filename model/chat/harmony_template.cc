// SPDX-License-Identifier: Apache-2.0
#include "model/chat/harmony_template.h"

#include <fmt/chrono.h>

#include <ctime>

#include "model/chat/chat_text.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// What the model was trained to find there.
constexpr std::string_view kIdentity =
    "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n";
constexpr std::string_view kChannels =
    "# Valid channels: analysis, commentary, final. Channel must be included for every message.";

std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    return fmt::format("{:%Y-%m-%d}", local);
}

void render_message(std::string_view header, std::string_view content, ChatPrompt& prompt) {
    prompt.token("<|start|>").markup(header).token("<|message|>").text(content).token("<|end|>");
}

}  // namespace

Result<ChatPrompt> HarmonyTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    AFD_TRY(refuse_later_systems(conversation, name()));
    const std::string date = conversation.date.empty() ? today() : conversation.date;
    const std::string effort = conversation.effort.empty() ? "medium" : conversation.effort;
    if (effort != "low" && effort != "medium" && effort != "high") {
        return invalid_argument("reasoning_effort = '{}': must be low, medium or high",
                                with(start_of(effort, 100)));
    }
    ChatPrompt prompt;
    render_message(
        "system",
        fmt::format(
            "{}Current date: {}\n\nReasoning: {}\n\n{}", kIdentity, date, effort, kChannels),
        prompt);
    for (const ChatMessage& message : conversation.messages) {
        if (message.role == ChatRole::kUser) {
            render_message("user", message.content, prompt);
        } else if (message.role == ChatRole::kAssistant) {
            render_message("assistant<|channel|>final", message.content, prompt);
        } else if (!message.content.empty()) {
            render_message("developer", "# Instructions\n\n" + message.content + "\n\n", prompt);
        }
    }
    if (conversation.add_generation_prompt) prompt.token("<|start|>").text("assistant");
    return prompt;
}

}  // namespace afd::model
