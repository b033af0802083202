// SPDX-License-Identifier: Apache-2.0
#pragma once

// AddedTokens: finds added tokens in text, leftmost first and of those the longest. A trie over
// bytes, so the time does not grow with the number of tokens.
//
// A token may take the blanks before it (strips_left) or after it (strips_right) along, and may
// count only where no letter, digit or underscore touches it (is_whole_word); what is passed over
// for that reason is not searched for others.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace afd::model {

struct AddedTokenOptions {
    bool strips_left = false;
    bool strips_right = false;
    bool is_whole_word = false;
};

class AddedTokens {
  public:
    struct Match {
        size_t begin = 0;  // Of what the token takes, blanks included.
        size_t end = 0;
        uint32_t id = 0;
    };

    // REQUIRES: content is not empty. Of equal contents the first one counts.
    void add(std::string_view content, uint32_t id, AddedTokenOptions options = {});

    // The first match at or after `start`, which is where the match before ended: its blanks end
    // there too. REQUIRES: text is valid UTF-8.
    std::optional<Match> find(std::string_view text, size_t start) const;

  private:
    static constexpr uint32_t kNoToken = UINT32_MAX;

    struct Token {
        uint32_t id;
        AddedTokenOptions options;
    };
    // The longest token at `begin`.
    struct Found {
        size_t end;
        const Token* token;
    };

    std::optional<Found> longest_at(std::string_view text, size_t begin) const;

    std::array<bool, 256> is_first_byte_{};
    std::vector<Token> tokens_;
    std::vector<uint32_t> node_tokens_ = {kNoToken};   // Of tokens_, that ends at each node.
    std::unordered_map<uint64_t, uint32_t> children_;  // node << 8 | byte
};

}  // namespace afd::model
