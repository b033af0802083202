// SPDX-License-Identifier: Apache-2.0
#pragma once

// The templates of Mixtral: [INST] question [/INST] answer</s>, strictly in turns, without tools.

#include "model/chat/template/chat_template.h"

namespace afd::model {

// 8x7B: [INST] is text. `has_blanks`: the later form, with a blank before each, and a system
// message in front of the first question.
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

// 8x22B: [INST] and [/INST] are tokens, and a system message stands in front of the last question.
class MistralV3Template final : public ChatTemplate {
  public:
    // `has_blank`: one behind [INST]. `takes_system`: an early form has no place for one.
    MistralV3Template(bool has_blank, bool takes_system)
        : has_blank_(has_blank), takes_system_(takes_system) {}
    std::string_view name() const override { return "mistral_v3"; }
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& /*conversation*/) const override { return {}; }
    std::string_view end_token() const override { return "</s>"; }

  private:
    const bool has_blank_;
    const bool takes_system_;
};

}  // namespace afd::model
