// SPDX-License-Identifier: Apache-2.0
#pragma once

// The templates of DeepSeek: V2 (User: and Assistant: as plain text), V3 and R1, V3.1.

#include "model/chat/template/chat_template.h"

namespace afd::model {

class DeepSeekV2Template final : public ChatTemplate {
  public:
    std::string_view name() const override { return "deepseek_v2"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override { return {}; }
    std::string_view end_token() const override;
};

// V3, and R1, which thinks before every answer. There is a form for calls and their results, none
// that offers tools: the client's system message has to.
class DeepSeekV3Template final : public ChatTemplate {
  public:
    enum class Thinking {
        kNone,
        kStarted,  // R1: the prompt ends within the thought.
        kOwn,      // R1-0528: it begins the thought itself.
    };
    explicit DeepSeekV3Template(Thinking thinking) : thinking_(thinking) {}

    std::string_view name() const override { return thinks() ? "deepseek_r1" : "deepseek_v3"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& conversation) const override;
    std::string_view end_token() const override;

  private:
    bool thinks() const { return thinking_ != Thinking::kNone; }

    const Thinking thinking_;
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
