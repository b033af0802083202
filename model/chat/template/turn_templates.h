// SPDX-License-Identifier: Apache-2.0
#pragma once

// Templates of turns between marks, without tools: OLMoE, Phi, dots.llm1, GigaChat.

#include <string>

#include "model/chat/template/chat_template.h"

namespace afd::model {

// <|user|>, <|assistant|> and <|system|> as plain text, each with a line of its own.
class OlmoeTemplate final : public ChatTemplate {
  public:
    // `bos` may be empty: the template has none.
    OlmoeTemplate(std::string bos, std::string eos);
    std::string_view name() const override { return "olmoe"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override { return {}; }
    std::string_view end_token() const override { return eos_; }

  private:
    const std::string bos_;
    const std::string eos_;
};

// Phi-3.5: <|user|>, <|assistant|> and <|system|> as tokens, each with a line of its own, and
// <|end|> behind every message.
class PhiTemplate final : public ChatTemplate {
  public:
    // `eos` ends a conversation that nobody is to answer.
    explicit PhiTemplate(std::string eos);
    std::string_view name() const override { return "phi3"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override { return {}; }
    std::string_view end_token() const override { return "<|end|>"; }

  private:
    const std::string eos_;
};

// dots.llm1: a mark in front of every message, and one of its own behind it.
class DotsTemplate final : public ChatTemplate {
  public:
    // `default_system` may be empty: nothing stands there.
    explicit DotsTemplate(std::string default_system);
    std::string_view name() const override { return "dots1"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override { return {}; }
    std::string_view end_token() const override { return "<|endofresponse|>"; }

  private:
    const std::string default_system_;
};

// GigaChat: role<|role_sep|> and a line, <|message_sep|> and two. A message of its maker comes
// first, above that of the system.
class GigaChatTemplate final : public ChatTemplate {
  public:
    // `maker_message`: that text, as the checkpoint has it.
    GigaChatTemplate(std::string bos, std::string maker_message);
    std::string_view name() const override { return "gigachat3"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override { return {}; }
    std::string_view end_token() const override { return "<|message_sep|>"; }

  private:
    const std::string bos_;
    const std::string maker_message_;
};

}  // namespace afd::model
