// SPDX-License-Identifier: Apache-2.0
#pragma once

// BytePairEncoder: one piece -> token ids, by merging the pair of lowest rank, of equal ranks the
// leftmost, until no pair is left. What it begins with are the tokens of the piece's characters;
// where a character has no token, those of its bytes. Knows no file format.
//
// A long piece, such as a whole text where no pre-tokenizer cuts it, falls into parts: between two
// characters of which no merge ever joins what ends with the one to what begins with the other,
// nothing merges, whatever lies around them. So the parts have the ids of the piece.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/tokenizer/merge_table.h"
#include "model/tokenizer/text_hash.h"

namespace afd::model {

class BytePairEncoder {
  public:
    // The token of a single byte.
    void set_byte(uint8_t byte, uint32_t id) { byte_ids_[byte] = id; }

    // The token of a character, in UTF-8. Without any, pieces are taken byte by byte.
    void set_character(std::string_view character, uint32_t id) {
        character_ids_.insert_or_assign(std::string(character), id);
    }

    // The rank of `left` + `right` -> `merged`; the last one given counts.
    void add_merge(uint32_t left, uint32_t right, uint32_t merged, uint32_t rank);

    // Some merge joins a text that ends with the character `left` to one that begins with `right`.
    // Who calls it for every merge has parts; without any call a piece is one part.
    void add_joint(std::string_view left, std::string_view right);

    // Bytes of the first part of `piece`. REQUIRES: valid UTF-8, not empty.
    size_t first_part(std::string_view piece) const;

    // Appends the ids of `piece`. Time O(n log n) in its length.
    // REQUIRES: valid UTF-8, if set_character() was called.
    void encode(std::string_view piece, std::vector<uint32_t>& ids);

  private:
    // A symbol of the piece in a linked list; merging removes the right one.
    struct Symbol {
        uint32_t id;
        int32_t previous;
        int32_t next;
        bool is_alive;
    };
    // A pair that may be merged; stale once one of its symbols has changed.
    struct Candidate {
        uint32_t rank;
        int32_t left;
        uint32_t merged;
    };

    // Joints by a hash of both characters: two of the same hash only make a part longer.
    static constexpr unsigned kJointBits = 20;

    static size_t joint_of(uint32_t left, uint32_t right);
    void begin_with(std::string_view piece);
    void push_symbol(uint32_t id);
    void push_candidate(int32_t left);
    void merge_pair(const Candidate& candidate);
    static bool comes_later(const Candidate& a, const Candidate& b);

    std::array<uint32_t, 256> byte_ids_{};
    std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> character_ids_;
    MergeTable merges_;
    std::vector<uint64_t> joints_;  // Bits; empty: no parts.
    std::vector<Symbol> symbols_;   // Scratch.
    std::vector<Candidate> heap_;   // Scratch.
};

}  // namespace afd::model
