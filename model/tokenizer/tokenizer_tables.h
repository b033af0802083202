// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenizerTables: what a Tokenizer looks up, made once of what its files say: the ids of texts,
// the merges, and the texts of ids. Nothing is encoded here (tokenizer.h).

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/byte_pair_encoder.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/text_hash.h"
#include "model/tokenizer/token_bound.h"
#include "model/tokenizer/token_decoder.h"
#include "model/tokenizer/tokenizer_file.h"
#include "proto/status.h"

namespace afd::model {

template <typename Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

// Added tokens by where they are looked for.
struct AddedTokenTables {
    AddedTokens raw;         // In the text as it is,
    AddedTokens normalized;  // and in the normalized text.
};

struct TokenizerTables {
    // Takes the parts of `file` that are used as they are. `origin` starts every message.
    // Errors: kDataLoss: its tokens contradict each other. kUnimplemented: a text could have none.
    static Result<TokenizerTables> create(TokenizerFile& file, const std::string& origin);

    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    TokenDecoder decoder;
    bool ignore_merges = false;
    bool is_cut_into_parts = false;
    AddedTokenTables added;
    AddedTokenTables plain_added;  // Those that are ordinary text: also looked for in plain text.
    BytePairEncoder encoder;
    TokenBound bound;
    std::vector<uint32_t> prompt_start;
    std::vector<uint32_t> prompt_end;
    TextMap<uint32_t> ids;                                  // By bytes in the text.
    std::vector<TokenPiece> pieces;                         // By id.
    std::unordered_map<uint32_t, TokenPiece> first_pieces;  // Those that differ.
    std::unordered_map<uint32_t, std::string> special_texts;
    TextMap<uint32_t> added_ids;
    std::unordered_set<uint32_t> taking_ids;  // Of added tokens that take blanks behind them.
};

}  // namespace afd::model
