// SPDX-License-Identifier: Apache-2.0
#pragma once

// QwenCoderTemplate: Qwen3-Coder: turns as those of ChatmlTemplate, with tools and calls as XML.

#include "model/chat/template/chat_template.h"

namespace afd::model {

class QwenCoderTemplate final : public ChatTemplate {
  public:
    std::string_view name() const override { return "qwen3_coder"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& conversation) const override;
    std::string_view end_token() const override { return "<|im_end|>"; }
};

}  // namespace afd::model
