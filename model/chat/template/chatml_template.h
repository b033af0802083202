// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChatmlTemplate: <|im_start|>role\n ... <|im_end|>\n, with the tools, tool results and thoughts of
// Qwen2.5 and Qwen3. A tool result is a turn of the user, and results that follow each other share
// one.

#include <string>

#include "model/chat/template/chat_template.h"

namespace afd::model {

// Who thinks does so in <think> before an answer, and keeps the thoughts since the last question.
enum class ChatmlThinking {
    kNone,
    kUnlessAsked,  // Qwen3: answers at once behind an empty thought.
    kAlways,       // Qwen3-Thinking-2507: the prompt ends within the thought.
};

class ChatmlTemplate final : public ChatTemplate {
  public:
    // `default_system`: what stands there where a conversation has no system message; empty:
    // nothing.
    ChatmlTemplate(std::string default_system, ChatmlThinking thinking, bool has_tools);

    std::string_view name() const override;
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& conversation) const override;
    std::string_view end_token() const override { return "<|im_end|>"; }

  private:
    Result<> render_start(const Conversation& conversation, ChatPrompt& prompt) const;
    Result<> render_answer(const ChatMessage& message,
                           size_t index,
                           const Conversation& conversation,
                           ChatPrompt& prompt) const;
    int last_question(const Conversation& conversation) const;

    const std::string default_system_;
    const ChatmlThinking thinking_;
    const bool has_tools_;
};

}  // namespace afd::model
