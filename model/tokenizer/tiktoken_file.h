// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tiktoken.model of Kimi and Moonlight: a line for each token, its bytes in base64 and its
// rank, which is its id. Two tokens merge if the vocabulary has what they make together; the lowest
// rank of that first. The expression that splits the text, the 256 special tokens behind the
// vocabulary and the cut of long texts are not in the file; they are Kimi's.

#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer_file.h"
#include "proto/status.h"

namespace afd::model {

// `config_text`, a tokenizer_config.json, names special tokens (added_tokens_decoder); the others
// are <|reserved_token_ID|>. Empty: there is none. `origin` starts every message.
// Errors: kDataLoss naming the line.
Result<TokenizerFile> parse_tiktoken_file(std::string_view text,
                                          std::string_view config_text,
                                          const std::string& origin);

// The parts of a long text that Kimi encodes apart: of 400,000 characters, and in these of 25,000
// characters without a change between blanks and others. Nearly every text is one part.
// REQUIRES: valid UTF-8.
std::vector<std::string_view> tiktoken_parts(std::string_view text);

}  // namespace afd::model
