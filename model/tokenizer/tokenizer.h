// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tokenizer: byte-level BPE as tokenizer.json describes it (the family that DeepSeek, Qwen and this
// project's demo model use), text <-> token ids.
//
// The subset: normalizer null or an empty Sequence; pre-tokenizers Split (regex, Isolated), Digits
// and ByteLevel; model BPE with merges as "a b" or ["a", "b"]; decoder ByteLevel. Anything else is
// refused at load with the key, its value and what is supported.
//
// Encoding: cut at added tokens (leftmost, then longest) -> each splitter in turn cuts every piece
// -> bytes of a piece merge by lowest rank, leftmost first -> ids.
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

#include "proto/status.h"

namespace afd::model {

class Tokenizer {
  public:
    // Reads tokenizer.json and, if present, tokenizer_config.json (add_bos_token, bos_token).
    // Errors: kNotFound, kDataLoss, kUnimplemented.
    static Result<Tokenizer> load(const std::string& directory);

    // The same from texts; an empty `config_text` means no tokenizer_config.json.
    static Result<Tokenizer> parse(std::string_view text,
                                   std::string_view config_text,
                                   const std::string& origin);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    // Token ids of `text`, without a BOS. Added tokens in the text become their ids.
    // Errors: kInvalidArgument (not UTF-8), kResourceExhausted (the regex engine gave up).
    Result<std::vector<uint32_t>> encode(std::string_view text);

    // encode() gives at least so many ids for `text` (token_bound.h), which need not be UTF-8. One
    // pass over the bytes: who has a limit asks before it encodes.
    uint64_t tokens_min(std::string_view text) const;

    // What to put before the ids of a text prompt, if the tokenizer says so (add_bos_token).
    std::optional<uint32_t> bos_id() const;

    // Text of the ids; special tokens (BOS, EOS, ...) are left out, bytes that are not UTF-8
    // become U+FFFD.
    std::string decode(std::span<const uint32_t> ids) const;

    // Bytes of one token; empty for special tokens and for ids that the vocabulary does not have.
    std::string_view token_bytes(uint32_t id) const;

    // One more than the highest id.
    uint32_t size() const;

  private:
    struct Impl;
    explicit Tokenizer(std::unique_ptr<Impl> impl);

    std::unique_ptr<Impl> impl_;
};

// Text of a growing sequence of tokens, in whole UTF-8 characters: the bytes of an unfinished
// character are held back until it is complete. Bytes that can never become a character give one
// U+FFFD for each maximal part of a valid sequence (Unicode 3.9), at once.
// What append() and finish() return, joined, is decode() of the ids.
class StreamDecoder {
  public:
    // `tokenizer` outlives this.
    explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

    // The new text after token `id`; often empty inside a character.
    std::string append(uint32_t id);

    // The end of the text: U+FFFD for a character that stayed unfinished.
    std::string finish();

  private:
    const Tokenizer* tokenizer_;
    std::string held_;  // At most 3 bytes, the start of a valid character.
};

}  // namespace afd::model
