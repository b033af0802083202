// SPDX-License-Identifier: Apache-2.0
#pragma once

// HarmonyTemplate: gpt-oss, in OpenAI's "harmony response format". The first message is not the
// client's: who the model is, today's date, how much it is to think. What the client's system says
// comes behind it as the developer's, and the tools (typescript_tools.h). Thoughts of old answers
// are left out, but for those that led to calls since the last answer.
//
// Calls and results are messages of their own, one each: of an answer with several calls, which
// the model does not make and the published template cuts to one, all are shown.

#include "model/chat/template/chat_template.h"

namespace afd::model {

class HarmonyTemplate final : public ChatTemplate {
  public:
    std::string_view name() const override { return "harmony"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& conversation) const override;
    bool takes_effort() const override { return true; }
    std::string_view end_token() const override { return "<|return|>"; }
    std::string_view call_end_token() const override { return "<|call|>"; }
};

}  // namespace afd::model
