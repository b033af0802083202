// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenizerFile: what a tokenizer.json and a tokenizer_config.json say, checked against the subset
// that model/tokenizer/tokenizer.h states. No token is looked up here.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/prompt_template.h"
#include "model/tokenizer/token_decoder.h"
#include "proto/status.h"

namespace afd::model {

// Ids are indices of tables, so they are bounded.
inline constexpr uint32_t kTokenIdMax = (1u << 24) - 1;

struct AddedToken {
    std::string content;
    uint32_t id = 0;
    bool is_special = false;     // Left out of decoded text.
    bool is_normalized = false;  // Looked for in the normalized text.
    AddedTokenOptions options;
};

struct TokenizerFile {
    std::vector<std::pair<std::string, uint32_t>> vocab;      // In byte stand-ins, if byte-level.
    std::vector<std::pair<std::string, std::string>> merges;  // By rank, as in `vocab`.
    bool ignore_merges = false;
    bool has_byte_fallback = false;
    bool merges_all_tokens = false;  // Any two that make a token, whose id is the rank.
    bool is_cut_into_parts = false;  // Long texts, as tiktoken_parts() does.
    std::vector<AddedToken> added_tokens;
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    TokenDecoder decoder;
    PromptTemplate prompt;
};

// An empty `config_text` means no tokenizer_config.json. `origin` starts every message.
// Errors: kDataLoss, kUnimplemented naming the key, its value and what is supported.
Result<TokenizerFile> parse_tokenizer_file(std::string_view text,
                                           std::string_view config_text,
                                           const std::string& origin);

}  // namespace afd::model
