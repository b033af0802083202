// SPDX-License-Identifier: Apache-2.0
#pragma once

// GlmTemplate: GLM-4.5 to 4.7. Thinks unless it is asked not to; only thoughts since the last
// question stay. Tools stand in front of all messages; of a call each argument has marks of its
// own.

#include "model/chat/template/chat_template.h"

namespace afd::model {

class GlmTemplate final : public ChatTemplate {
  public:
    enum class Form {
        k45,  // 4.5 and 4.6: a line behind each mark; the model begins its thought itself.
        k47,  // No line; the prompt ends within the thought, or behind it.
    };
    explicit GlmTemplate(Form form) : form_(form) {}

    std::string_view name() const override { return form_ == Form::k45 ? "glm4" : "glm47"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& conversation) const override;
    std::string_view end_token() const override { return "<|user|>"; }
    std::string_view call_end_token() const override { return "<|observation|>"; }

  private:
    Result<> render_tools(const Conversation& conversation, ChatPrompt& prompt) const;
    // Of an answer, the thought and what was said.
    void render_answer(const ChatMessage& message, bool shows_thought, ChatPrompt& prompt) const;
    Result<> render_calls(const ChatMessage& message, size_t index, ChatPrompt& prompt) const;
    void render_result(const Conversation& conversation, size_t index, ChatPrompt& prompt) const;
    // What stands between marks.
    std::string_view line() const { return form_ == Form::k45 ? "\n" : ""; }

    const Form form_;
};

}  // namespace afd::model
