// SPDX-License-Identifier: Apache-2.0
#pragma once

// KimiTemplate: Kimi-K2 and Moonlight: <|im_ROLE|>role<|im_middle|>, <|im_end|>. Kimi-K2-Thinking
// and K2.5 think before an answer; the thoughts since the last answer that called no tool stay,
// those before are empty, and all are where K2.5 is asked not to think.
//
// Calls have ids that the model counts: functions.NAME:INDEX. An id of another form, as front ends
// make them, is shown as that, with the number of calls before it.

#include <string>

#include "model/chat/template/chat_template.h"

namespace afd::model {

class KimiTemplate final : public ChatTemplate {
  public:
    enum class Tools {
        kNone,     // Moonlight; early forms of K2, and K2.5, which has another one.
        kSpaced,   // JSON with blanks behind commas and colons,
        kCompact,  // and without.
    };
    enum class Thinking {
        kNone,
        kOwn,          // K2-Thinking: it begins the thought itself.
        kUnlessAsked,  // K2.5, K2.6: the prompt ends within the thought, or behind an empty one.
    };
    // `default_system`: of conversations without a system message; empty: they have none.
    KimiTemplate(std::string default_system, Thinking thinking, Tools tools);
    std::string_view name() const override;
    Result<ChatPrompt> render(const Conversation& conversation) const override;
    OutputSyntax output(const Conversation& conversation) const override;
    std::string_view end_token() const override { return "<|im_end|>"; }

  private:
    // Whether thoughts are empty, and the answer is to have none.
    bool is_asked_not_to(const Conversation& conversation) const;
    Result<> render_tools(const Conversation& conversation, ChatPrompt& prompt) const;

    const std::string default_system_;
    const Thinking thinking_;
    const Tools tools_;
};

}  // namespace afd::model
