// SPDX-License-Identifier: Apache-2.0
#include "model/chat/template/mistral_templates.h"

#include "model/chat/message/chat_text.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// That behind at most one system message, where the template takes one, user and assistant take
// turns. How many messages stand before the turns.
Result<size_t> check_turns(const Conversation& conversation,
                           bool takes_system,
                           std::string_view template_name) {
    const bool has_system = conversation.messages[0].role == ChatRole::kSystem;
    const size_t first = takes_system && has_system ? 1 : 0;
    for (size_t i = first; i < conversation.messages.size(); ++i) {
        const ChatRole due = (i - first) % 2 == 0 ? ChatRole::kUser : ChatRole::kAssistant;
        if (conversation.messages[i].role == due) continue;
        return invalid_argument(
            "messages[{}] is of the {}: in the chat template of this model ({}) user and "
            "assistant take turns, {}",
            with(i,
                 name_of(conversation.messages[i].role),
                 template_name,
                 takes_system ? "behind at most one system message" : "without system messages"));
    }
    return first;
}

}  // namespace

Result<ChatPrompt> MixtralTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    AFD_ASSIGN(const size_t first, check_turns(conversation, has_blanks_, name()));
    ChatPrompt prompt;
    prompt.token("<s>");
    const std::string_view blank = has_blanks_ ? " " : "";
    for (size_t i = first; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        if (message.role == ChatRole::kUser) {
            prompt.text(blank).text("[INST] ");
            if (first == 1 && i == 1) prompt.text(conversation.messages[0].content).text("\n\n");
            prompt.text(message.content).text(" [/INST]");
        } else {
            prompt.text(blank).text(message.content).token("</s>");
        }
    }
    return prompt;
}

Result<ChatPrompt> MistralV3Template::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    AFD_ASSIGN(const size_t first, check_turns(conversation, takes_system_, name()));
    ChatPrompt prompt;
    prompt.token("<s>");
    for (size_t i = first; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        if (message.role == ChatRole::kUser) {
            const bool is_last = i + 1 == conversation.messages.size();
            prompt.token("[INST]").text(has_blank_ ? " " : "");
            if (first == 1 && is_last) prompt.text(conversation.messages[0].content).text("\n\n");
            prompt.text(message.content).token("[/INST]");
        } else {
            prompt.text(" ").text(strip(message.content)).token("</s>");
        }
    }
    return prompt;
}

}  // namespace afd::model
