// SPDX-License-Identifier: Apache-2.0
#pragma once

// MiniMaxTemplate: MiniMax-M2: ]~b]role and a line, [e~[ and a line. Thinks before every answer;
// thoughts since the last question stay. Calls are XML.

#include <string>

#include "model/chat/template/chat_template.h"

namespace afd::model {

class MiniMaxTemplate final : public ChatTemplate {
  public:
    MiniMaxTemplate(std::string default_system, bool has_tools);
    std::string_view name() const override { return "minimax"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& conversation) const override;
    std::string_view end_token() const override { return "[e~["; }

  private:
    Result<> render_system(const Conversation& conversation, ChatPrompt& prompt) const;

    const std::string default_system_;
    const bool has_tools_;
};

}  // namespace afd::model
