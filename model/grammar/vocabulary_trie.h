// SPDX-License-Identifier: Apache-2.0
#pragma once

// VocabularyTrie: the tokens of a vocabulary by their bytes, as one array in the order of a walk
// from the root: behind a node come the nodes below it. A walk that does not want a byte goes on
// at `skip`.
//
// All of it is one run of bytes without a pointer, its image: who has the tokenizer builds it once
// and hands it to processes that only read it.
//
//   offset  bytes
//   0       32              Header
//   32      12 * num_nodes  nodes
//   ...     4 * num_ids     tokens in the order of the walk
//   ...     4 * (vocab_size + 1)  where the bytes of a token begin, by id; they end where the next
//                           begin
//   ...     4 * num_plain   tokens of plain text, those with more characters first
//   ...     8 * words       bit id % 64 of word id / 64: token id is plain text
//   ...     num_bytes       bytes of all tokens, by id
//
// In the order of bytes of the machine; it never leaves it. Who reads it lists the long tokens, of
// which there are a few hundred, for itself.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace afd::model {

class VocabularyTrie {
  public:
    struct Node {
        uint32_t skip = 0;          // The node behind all that are below this one.
        uint32_t tokens_begin = 0;  // Its tokens in token_ids(); they end where the next node's
                                    // begin.
        uint16_t depth = 0;         // Bytes up to and with this one; 1 at the top.
        uint8_t byte = 0;
        uint8_t is_plain = 0;  // All tokens from here on down to `skip` are plain text.
    };
    static_assert(sizeof(Node) == 12);

    // Longer tokens are left out: nothing that a grammar asks for hangs on them.
    static constexpr size_t kTokenBytesMax = 1024;
    // More tokens, or bytes of them, than any vocabulary has; what a reader believes at most.
    static constexpr uint32_t kTokensMax = 1 << 24;
    static constexpr uint64_t kImageBytesMax = uint64_t{1} << 30;

    // What the bytes of a special token begin with, which is a mark and no text: a byte that UTF-8
    // does not have, so that only a grammar that asks for the mark meets it. No other token may
    // have it.
    static constexpr char kMark = '\xff';

    // `token_bytes[id]` is what a token adds to a text; empty: no token, or one that is no text.
    // REQUIRES: at most kTokensMax.
    explicit VocabularyTrie(std::span<const std::string> token_bytes);

    // Reads an image that stays as it is; `owner` keeps it. Nothing of it is believed: with any
    // bytes every function below stays within them.
    // REQUIRES: image.data() is a multiple of 8.
    // Errors: kDataLoss naming what is wrong.
    static Result<VocabularyTrie> read(std::span<const std::byte> image,
                                       std::shared_ptr<const void> owner);

    std::span<const std::byte> image() const { return image_; }

    // In the order of the walk.
    std::span<const Node> nodes() const { return nodes_; }
    std::span<const uint32_t> tokens_of(uint32_t node) const { return tokens_of(node, node + 1); }
    // Of the nodes [node, end).
    std::span<const uint32_t> tokens_of(uint32_t node, uint32_t end) const {
        const uint32_t begin = nodes_[node].tokens_begin;
        const size_t last = end < nodes_.size() ? nodes_[end].tokens_begin : ids_.size();
        return ids_.subspan(begin, last - begin);
    }
    // Bytes of the token; empty as in the constructor. REQUIRES: id < vocab_size().
    std::string_view bytes_of(uint32_t id) const {
        return bytes_.substr(starts_[id], starts_[id + 1] - starts_[id]);
    }
    size_t vocab_size() const { return starts_.size() - 1; }

    // The tokens of more than ByteProgram::kShortBytes, by their bytes.
    struct LongToken {
        uint32_t id = 0;
        uint32_t num_shared = 0;  // First bytes that are those of the one before.
    };
    std::span<const LongToken> long_tokens() const { return long_tokens_; }

    // Whether the token has bytes, and is no special one.
    bool is_text(uint32_t id) const {
        const std::string_view bytes = bytes_of(id);
        return !bytes.empty() && bytes.front() != kMark;
    }

    // Plain text: 1 to kPlainCharactersMax whole characters of which none has a meaning of its own
    // within the quotes of JSON: UTF-8 without control characters, '"' and '\'.
    static constexpr size_t kPlainCharactersMax = 32;
    static bool is_plain_text(std::string_view bytes);
    // The tokens of plain text: as a mask; those with more characters first; how many have more
    // than `count`.
    std::span<const uint64_t> plain_text() const { return plain_; }
    std::span<const uint32_t> plain_by_length() const { return by_length_; }
    size_t num_plain_longer_than(size_t count) const;

  private:
    struct Header;
    struct Builder;

    VocabularyTrie() = default;
    // Where the parts of an image lie. False: not within `image`.
    bool take_parts(std::span<const std::byte> image);
    Result<> check() const;
    void find_long_tokens();

    std::shared_ptr<const void> owner_;
    std::span<const std::byte> image_;
    std::span<const Node> nodes_;
    std::span<const uint32_t> ids_;
    std::span<const uint32_t> starts_;  // [vocab_size + 1]
    std::span<const uint64_t> plain_;
    std::span<const uint32_t> by_length_;  // Those of plain_, with more characters first.
    std::string_view bytes_;
    std::vector<LongToken> long_tokens_;
};

}  // namespace afd::model
