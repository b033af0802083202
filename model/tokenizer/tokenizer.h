// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tokenizer: byte-pair encoding as tokenizer.json describes it, text <-> token ids.
//
// Encoding: cut at added tokens (leftmost, then longest), first those that are looked for in the
// text as it is, then, in what lies between them and is normalized (normalizer.h), the others ->
// pieces (pre_tokenizer.h) -> the characters or bytes of a piece merge by lowest rank, leftmost
// first (byte_pair_encoder.h) -> ids.
//
// Two kinds of vocabulary: written in bytes (DeepSeek, Qwen; pre-tokenizer and decoder ByteLevel),
// which must have every byte that UTF-8 uses; or in characters (Mixtral, Phi; byte_fallback), which
// must have <0x00> ... for the characters that it lacks.
//
// Anything else is refused at load with the key, its value and what is supported. For all that is
// served golden_test.cc has the ids and texts of the tokenizers library, with one difference: where
// ByteLevel decodes, the library takes an added token such as DeepSeek-LLM's "ö" for the stand-in
// of byte F6, which is no text (U+FFFD). Here it is the text that encode() finds it in, if its
// stand-ins are not UTF-8 and no entry of the vocabulary.
//
// One thread at a time: encode() keeps a cache of pieces. Memory that a long text took is given
// back.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/token_decoder.h"
#include "proto/status.h"

namespace afd::model {

class Tokenizer {
  public:
    // Reads tokenizer.json, or tiktoken.model where there is none (tiktoken_file.h), and, if
    // present, tokenizer_config.json (prompt_template.h).
    // Errors: kNotFound, kDataLoss, kUnimplemented.
    static Result<Tokenizer> load(const std::string& directory);

    // The same from texts; an empty `config_text` means no tokenizer_config.json.
    static Result<Tokenizer> parse(std::string_view text,
                                   std::string_view config_text,
                                   const std::string& origin);

    // The same from the text of a tiktoken.model.
    static Result<Tokenizer> parse_tiktoken(std::string_view text,
                                            std::string_view config_text,
                                            const std::string& origin);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    // Token ids of `text`, without what goes before and after a prompt. Added tokens in the text
    // become their ids. Errors: kInvalidArgument (not UTF-8), kResourceExhausted (the regex engine
    // gave up, or the normalizer makes the text many times longer).
    Result<std::vector<uint32_t>> encode(std::string_view text);

    // The same of text that is not to end a turn or speak for somebody else: no special token is
    // looked for, nor any with one of < > [ ] | / ｜ in it, as the marks of templates have. Other
    // added tokens, such as runs of blanks, are ordinary text, which the model knows by their ids.
    // `begins_prompt`: no token is before it.
    Result<std::vector<uint32_t>> encode_plain(std::string_view text, bool begins_prompt);

    // The id of the added token with this text, if there is one.
    std::optional<uint32_t> added_token(std::string_view text) const;

    // How many bytes at the start of `text` an added token takes along that stands before it.
    size_t blanks_taken(uint32_t added_token, std::string_view text) const;

    // encode() gives at least so many ids for `text` (token_bound.h), which need not be UTF-8. One
    // pass over the bytes: who has a limit asks before it encodes.
    uint64_t tokens_min(std::string_view text) const;

    // What to put before and after the ids of a text prompt: often a BOS, or nothing.
    std::span<const uint32_t> prompt_start() const;
    std::span<const uint32_t> prompt_end() const;

    // Text of the ids; special tokens (BOS, EOS, ...) are left out unless `keeps_special`, bytes
    // that are not UTF-8 become U+FFFD as in stream_decoder.h, whose source has this.
    std::string decode(std::span<const uint32_t> ids, bool keeps_special = false) const;

    // Bytes of one token; empty for special tokens and for ids that the vocabulary does not have.
    std::string_view token_bytes(uint32_t id) const { return piece(id).bytes; }

    // What one token is in a text, inside it and at its start.
    const TokenPiece& piece(uint32_t id) const;
    const TokenPiece& first_piece(uint32_t id) const;
    // The text of a special token, which has no piece; empty for all others.
    const std::string& special_text(uint32_t id) const;
    const TokenDecoder& decoder() const;

    // One more than the highest id.
    uint32_t size() const;

  private:
    struct Impl;
    explicit Tokenizer(std::unique_ptr<Impl> impl);

    std::unique_ptr<Impl> impl_;
};

}  // namespace afd::model
