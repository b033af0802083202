// SPDX-License-Identifier: Apache-2.0
#include "model/chat/glm_template.h"

#include "model/chat/chat_text.h"
#include "proto/failure.h"

namespace afd::model {

Result<ChatPrompt> GlmTemplate::render(const Conversation& conversation) const {
    AFD_TRY(refuse_tools(conversation, name()));
    const bool thinks = conversation.thinking.value_or(true);
    const bool is_45 = form_ == Form::k45;
    const int last_user = last_user_index(conversation);
    ChatPrompt prompt;
    prompt.token("[gMASK]").token("<sop>");
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        prompt.token("<|" + std::string(name_of(message.role)) + "|>").text(is_45 ? "\n" : "");
        if (message.role == ChatRole::kAssistant) {
            render_answer(message, static_cast<int>(i) > last_user, prompt);
            continue;
        }
        prompt.text(message.content);
        const bool is_question = message.role == ChatRole::kUser;
        if (is_45 && is_question && !thinks && !message.content.ends_with("/nothink")) {
            prompt.token("/nothink");
        }
    }
    if (!conversation.add_generation_prompt) return prompt;
    prompt.token("<|assistant|>");
    if (!is_45) {
        prompt.token(thinks ? "<think>" : "</think>");
    } else if (!thinks) {
        prompt.text("\n").token("<think>").token("</think>");
    }
    return prompt;
}

void GlmTemplate::render_answer(const ChatMessage& message,
                                bool shows_thought,
                                ChatPrompt& prompt) const {
    const Answer answer = split_reasoning(message);
    const std::string_view thought = shows_thought ? strip(answer.reasoning) : "";
    if (form_ == Form::k45 || !thought.empty()) prompt.token("<think>").text(thought);
    prompt.token("</think>");
    const std::string_view content = strip(answer.content);
    if (!content.empty()) prompt.text(form_ == Form::k45 ? "\n" : "").text(content);
}

OutputSyntax GlmTemplate::output(const Conversation& conversation) const {
    if (form_ == Form::k45 || !conversation.add_generation_prompt) {
        return {.reasoning = ReasoningSyntax::kTagged};
    }
    const bool thinks = conversation.thinking.value_or(true);
    return {.reasoning = thinks ? ReasoningSyntax::kStarted : ReasoningSyntax::kNone};
}

}  // namespace afd::model
