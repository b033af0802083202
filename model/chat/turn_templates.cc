// SPDX-License-Identifier: Apache-2.0
#include "model/chat/turn_templates.h"

#include <utility>

#include "model/chat/chat_text.h"
#include "proto/failure.h"

namespace afd::model {

Result<ChatPrompt> MixtralTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    ChatPrompt prompt;
    prompt.token("<s>");
    std::string system;
    size_t first = 0;
    // The earlier form has no place for one, and refuses it as a message out of turn.
    if (has_blanks_ && conversation.messages[0].role == ChatRole::kSystem) {
        system = conversation.messages[0].content + "\n\n";
        first = 1;
    }
    const std::string_view blank = has_blanks_ ? " " : "";
    for (size_t i = first; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        const ChatRole due = (i - first) % 2 == 0 ? ChatRole::kUser : ChatRole::kAssistant;
        if (message.role != due) {
            return invalid_argument(
                "messages[{}] is of the {}: in the chat template of this model ({}) user and "
                "assistant take turns, {}",
                with(
                    i,
                    name_of(message.role),
                    name(),
                    has_blanks_ ? "behind at most one system message" : "without system messages"));
        }
        if (message.role == ChatRole::kUser) {
            prompt.text(blank).text("[INST] ").text(i == first ? system : "");
            prompt.text(message.content).text(" [/INST]");
        } else {
            prompt.text(blank).text(message.content).token("</s>");
        }
    }
    return prompt;
}

OlmoeTemplate::OlmoeTemplate(std::string bos, std::string eos)
    : bos_(std::move(bos)), eos_(std::move(eos)) {}

Result<ChatPrompt> OlmoeTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    ChatPrompt prompt;
    prompt.token(bos_);
    for (const ChatMessage& message : conversation.messages) {
        prompt.text("<|").text(name_of(message.role)).text("|>\n").text(message.content);
        const bool is_last = &message == &conversation.messages.back();
        if (message.role == ChatRole::kAssistant) prompt.token(eos_);
        if (message.role != ChatRole::kAssistant || !is_last) prompt.text("\n");
    }
    if (conversation.add_generation_prompt) prompt.text("<|assistant|>\n");
    return prompt;
}

Result<ChatPrompt> GlmTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    const bool thinks = conversation.thinking.value_or(true);
    const int last_user = last_user_index(conversation);
    ChatPrompt prompt;
    prompt.token("[gMASK]").token("<sop>");
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        prompt.token("<|" + std::string(name_of(message.role)) + "|>").text("\n");
        if (message.role == ChatRole::kAssistant) {
            const Answer answer = split_reasoning(message);
            prompt.token("<think>");
            if (static_cast<int>(i) > last_user) prompt.text(strip(answer.reasoning));
            prompt.token("</think>");
            const std::string_view content = strip(answer.content);
            if (!content.empty()) prompt.text("\n").text(content);
        } else {
            prompt.text(message.content);
            const bool is_question = message.role == ChatRole::kUser;
            if (is_question && !thinks && !message.content.ends_with("/nothink")) {
                prompt.token("/nothink");
            }
        }
    }
    if (!conversation.add_generation_prompt) return prompt;
    prompt.token("<|assistant|>");
    if (!thinks) prompt.text("\n").token("<think>").token("</think>");
    return prompt;
}

KimiTemplate::KimiTemplate(std::string default_system)
    : default_system_(std::move(default_system)) {}

Result<ChatPrompt> KimiTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    ChatPrompt prompt;
    const auto turn = [&prompt](std::string_view role) -> ChatPrompt& {
        prompt.token("<|im_" + std::string(role) + "|>").text(role);
        return prompt.token("<|im_middle|>");
    };
    if (conversation.messages[0].role != ChatRole::kSystem) {
        turn("system").text(default_system_).token("<|im_end|>");
    }
    for (const ChatMessage& message : conversation.messages) {
        turn(name_of(message.role)).text(message.content).token("<|im_end|>");
    }
    if (conversation.add_generation_prompt) turn("assistant");
    return prompt;
}

PhiTemplate::PhiTemplate(std::string eos) : eos_(std::move(eos)) {}

Result<ChatPrompt> PhiTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    ChatPrompt prompt;
    for (const ChatMessage& message : conversation.messages) {
        if (message.role == ChatRole::kSystem && message.content.empty()) continue;
        prompt.token("<|" + std::string(name_of(message.role)) + "|>").text("\n");
        prompt.text(message.content).token("<|end|>").text("\n");
    }
    if (conversation.add_generation_prompt) {
        prompt.token("<|assistant|>").text("\n");
    } else {
        prompt.token(eos_);
    }
    return prompt;
}

}  // namespace afd::model
