// SPDX-License-Identifier: Apache-2.0
#pragma once

// StreamDecoder: text of a growing sequence of tokens, in whole UTF-8 characters: the bytes of an
// unfinished character are held back until it is complete. Bytes that can never become a character
// give U+FFFD:
//   in a vocabulary of bytes, one for each maximal part of a valid sequence (Unicode 3.9), at once;
//   in one of characters, where tokens that are bytes follow each other, one for each of them
//   unless all of them together are characters; that is known when another token follows.
// What append() and finish() return, joined, is decode() of the ids; behind other tokens
// (follow()) it is what they add to the text of those.

#include <cstdint>
#include <span>
#include <string>

#include "model/tokenizer/tokenizer.h"

namespace afd::model {

class StreamDecoder {
  public:
    // `keeps_special`: special tokens are text, too. `tokenizer` outlives this.
    explicit StreamDecoder(const Tokenizer& tokenizer, bool keeps_special = false)
        : tokenizer_(&tokenizer),
          keeps_special_(keeps_special),
          num_to_strip_(tokenizer.decoder().strip().count) {}

    // The text goes on with that of `ids`: if they have any, a blank in front of it is not at the
    // start of a text, and stays. A character that they leave unfinished stays so.
    // REQUIRES: no append() yet.
    void follow(std::span<const uint32_t> ids);

    // The new text after token `id`; often empty inside a character.
    std::string append(uint32_t id);

    // The end of the text: U+FFFD for a character that stayed unfinished.
    std::string finish();

  private:
    std::string take_whole_characters();
    std::string take_group();
    std::string stripped(std::string text);
    std::string special(const std::string& text);

    const Tokenizer* tokenizer_;
    bool keeps_special_;
    std::string held_;  // At most 3 bytes, the start of a valid character; or a group of bytes.
    uint64_t num_to_strip_;
    bool is_first_ = true;
};

}  // namespace afd::model
