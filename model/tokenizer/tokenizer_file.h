// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenizerFile: what a tokenizer.json and a tokenizer_config.json say, checked against the subset
// that model/tokenizer/tokenizer.h states. Text only: nothing is looked up, no pattern is compiled.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/status.h"

namespace afd::model {

// Ids are indices of tables, so they are bounded.
inline constexpr uint32_t kTokenIdMax = (1u << 24) - 1;

struct AddedToken {
    std::string content;
    uint32_t id = 0;
    bool is_special = false;
};

struct TokenizerFile {
    std::vector<std::pair<std::string, uint32_t>> vocab;      // In byte stand-ins.
    std::vector<std::pair<std::string, std::string>> merges;  // By rank, in byte stand-ins.
    bool ignore_merges = false;
    std::vector<AddedToken> added_tokens;
    std::vector<std::string> split_patterns;  // Applied in this order.
    std::optional<std::string> bos_token;     // Goes before every prompt.
};

// An empty `config_text` means no tokenizer_config.json. `origin` starts every message.
// Errors: kDataLoss, kUnimplemented naming the key, its value and what is supported.
Result<TokenizerFile> parse_tokenizer_file(std::string_view text,
                                           std::string_view config_text,
                                           const std::string& origin);

}  // namespace afd::model
