// SPDX-License-Identifier: Apache-2.0
#pragma once

// Templates of turns between marks, without tools: Mixtral, OLMoE, GLM-4.5, Kimi, Phi.

#include <string>

#include "model/chat/chat_template.h"

namespace afd::model {

// [INST] question [/INST] answer</s>, strictly in turns. `has_blanks`: the later form, with a blank
// before each, and a system message in front of the first question.
class MixtralTemplate final : public ChatTemplate {
  public:
    explicit MixtralTemplate(bool has_blanks) : has_blanks_(has_blanks) {}
    std::string_view name() const override { return "mixtral"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override { return {}; }
    std::string_view end_token() const override { return "</s>"; }

  private:
    const bool has_blanks_;
};

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

// Thinks unless it is asked not to; only thoughts since the last question stay.
class GlmTemplate final : public ChatTemplate {
  public:
    std::string_view name() const override { return "glm4"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override {
        return {.reasoning = ReasoningSyntax::kTagged};
    }
    std::string_view end_token() const override { return "<|user|>"; }
};

// Kimi-K2 and Moonlight.
class KimiTemplate final : public ChatTemplate {
  public:
    explicit KimiTemplate(std::string default_system);
    std::string_view name() const override { return "kimi"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override { return {}; }
    std::string_view end_token() const override { return "<|im_end|>"; }

  private:
    const std::string default_system_;
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

}  // namespace afd::model
