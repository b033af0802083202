// SPDX-License-Identifier: Apache-2.0
#pragma once

// HarmonyTemplate: gpt-oss, in OpenAI's "harmony response format". The first message is not the
// client's: who the model is, today's date, how much it is to think. What the client's system says
// comes behind it as the developer's. Thoughts of old answers are left out.
//
// Tools are refused: there functions are declared in a programming language, not as JSON.

#include "model/chat/chat_template.h"

namespace afd::model {

class HarmonyTemplate final : public ChatTemplate {
  public:
    std::string_view name() const override { return "harmony"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override {
        return {.reasoning = ReasoningSyntax::kChannels};
    }
    bool takes_effort() const override { return true; }
    std::string_view end_token() const override { return "<|return|>"; }
};

}  // namespace afd::model
