// SPDX-License-Identifier: Apache-2.0
#include "model/chat/template/turn_templates.h"

#include <utility>

#include "model/chat/message/chat_text.h"
#include "proto/failure.h"

namespace afd::model {

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

DotsTemplate::DotsTemplate(std::string default_system)
    : default_system_(std::move(default_system)) {}

Result<ChatPrompt> DotsTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    ChatPrompt prompt;
    const auto turn = [&prompt](ChatRole role, std::string_view content) {
        const std::string mark = role == ChatRole::kSystem ? "system"
                                 : role == ChatRole::kUser ? "userprompt"
                                                           : "response";
        prompt.token("<|" + mark + "|>").text(content).token("<|endof" + mark + "|>");
    };
    if (conversation.messages[0].role != ChatRole::kSystem && !default_system_.empty()) {
        turn(ChatRole::kSystem, default_system_);
    }
    for (const ChatMessage& message : conversation.messages) turn(message.role, message.content);
    if (conversation.add_generation_prompt) prompt.token("<|response|>");
    return prompt;
}

GigaChatTemplate::GigaChatTemplate(std::string bos, std::string maker_message)
    : bos_(std::move(bos)), maker_message_(std::move(maker_message)) {}

Result<ChatPrompt> GigaChatTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    ChatPrompt prompt;
    const auto turn = [&prompt](std::string_view role, std::string_view content) {
        prompt.text(role).token("<|role_sep|>").text("\n").text(content);
        prompt.token("<|message_sep|>").text("\n\n");
    };
    prompt.token(bos_);
    turn("developer system", maker_message_);
    for (const ChatMessage& message : conversation.messages) {
        turn(name_of(message.role), message.content);
    }
    // As that template does it: an answer is not gone on with.
    const bool is_answered = conversation.messages.back().role == ChatRole::kAssistant;
    if (conversation.add_generation_prompt && !is_answered) {
        prompt.text("assistant").token("<|role_sep|>").text("\n");
    }
    return prompt;
}

}  // namespace afd::model
