// SPDX-License-Identifier: Apache-2.0
#pragma once

// The templates of DeepSeek: V2 (User: and Assistant: as plain text), V3 and R1, V3.1.

#include "model/chat/chat_template.h"

namespace afd::model {

class DeepSeekV2Template final : public ChatTemplate {
  public:
    std::string_view name() const override { return "deepseek_v2"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override { return {}; }
    std::string_view end_token() const override;
};

// V3, and R1, which begins every answer with <think>. There is a form for calls and their results,
// none that offers tools: the client's system message has to.
class DeepSeekV3Template final : public ChatTemplate {
  public:
    explicit DeepSeekV3Template(bool is_r1) : is_r1_(is_r1) {}

    std::string_view name() const override { return is_r1_ ? "deepseek_r1" : "deepseek_v3"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& conversation) const override;
    std::string_view end_token() const override;

  private:
    const bool is_r1_;
};

// Thinks if it is asked to. Tools stand behind the system message, in the form that the model's
// card gives.
class DeepSeekV31Template final : public ChatTemplate {
  public:
    std::string_view name() const override { return "deepseek_v31"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& conversation) const override;
    std::string_view end_token() const override;
};

}  // namespace afd::model
