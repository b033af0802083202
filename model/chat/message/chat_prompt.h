// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChatPrompt: a rendered conversation in pieces: tokens that the template puts there, and text. So
// a message that contains the text of a special token stays text: nobody can end his turn, or speak
// for somebody else, from within a message.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "proto/status.h"

namespace afd::model {

class ChatPrompt {
  public:
    // An added token of the tokenizer, by its text; where the tokenizer has no such one, its text.
    ChatPrompt& token(std::string_view text);
    // Never a special token or a mark, whatever it contains (Tokenizer::encode_plain()). Texts that
    // follow each other are one text.
    ChatPrompt& text(std::string_view text);
    // Of the template, not of a message: tokens in angle brackets, <...>, and the text between
    // them.
    ChatPrompt& markup(std::string_view text);

    // As a person would write it, and the pattern of the checkpoint would.
    std::string to_text() const;

    // Errors: as Tokenizer::encode().
    Result<std::vector<uint32_t>> encode(Tokenizer& tokenizer) const;

  private:
    struct Piece {
        bool is_token;
        std::string text;
    };
    std::vector<Piece> pieces_;
};

}  // namespace afd::model
