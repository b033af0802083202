// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenDecoder: the decoder of a tokenizer.json: what each token's entry in the vocabulary becomes
// in a text. One of two kinds:
//
//   ByteLevel           the entry is written in stand-ins for bytes (byte_alphabet.h)
//   a Sequence of, or   the entry is text: Replace and Metaspace put blanks where their signs are;
//   one of, these       ByteFallback takes <0xE4> for a byte; Fuse and Strip take blanks away that
//                       the text begins with
//
// Tokens only; how their bytes make characters is the business of StreamDecoder (stream_decoder.h).

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/unicode/text_pattern.h"
#include "proto/status.h"

namespace afd::model {

// What a token is in the text.
struct TokenPiece {
    enum class Kind {
        kNothing,  // No token, or a special one: left out.
        kText,     // Bytes of text.
        kByte,     // One byte, that is a character only together with its neighbours.
    };
    Kind kind = Kind::kNothing;
    std::string bytes;
};

class TokenDecoder {
  public:
    // What a text loses at its start: up to `count` of `character`, one in UTF-8.
    struct Strip {
        std::string character;
        uint64_t count = 0;
    };

    // Errors: kUnimplemented and kDataLoss naming the key.
    static Result<TokenDecoder> parse(const nlohmann::json& json, const std::string& origin);

    // Errors: as TextPattern::replaced with replaced_bytes_max().
    Result<TokenPiece> piece(std::string_view entry);

    bool is_byte_level() const { return is_byte_level_; }

    // The same for the token that the text begins with, which Metaspace treats otherwise.
    std::string first_piece(std::string_view entry) const;
    bool treats_first_otherwise() const { return drops_first_; }

    // Tokens that are bytes and follow each other are text together or not at all.
    bool has_byte_groups() const { return has_byte_fallback_; }

    const Strip& strip() const { return strip_; }

  private:
    struct Replace {
        TextPattern pattern;
        std::string content;
    };

    Result<> read(const nlohmann::json& json, const std::string& origin);
    Result<> read_replace(const nlohmann::json& json, const std::string& origin);
    Result<> read_metaspace(const nlohmann::json& json, const std::string& origin);
    Result<> read_strip(const nlohmann::json& json, const std::string& origin);

    bool is_byte_level_ = false;
    bool has_byte_fallback_ = false;
    bool is_fused_ = false;
    bool drops_first_ = false;
    std::string metaspace_;
    std::vector<Replace> replaces_;
    Strip strip_;
};

}  // namespace afd::model
