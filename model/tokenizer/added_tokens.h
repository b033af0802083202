// SPDX-License-Identifier: Apache-2.0
#pragma once

// AddedTokens: finds the added tokens of a tokenizer in text, leftmost first and of those the
// longest. A trie over bytes, so the time does not grow with the number of tokens.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace afd::model {

class AddedTokens {
  public:
    struct Match {
        size_t begin = 0;
        size_t size = 0;
        uint32_t id = 0;
    };

    // REQUIRES: content is not empty. Of equal contents the first one counts.
    void add(std::string_view content, uint32_t id);

    // The first match at or after `start`.
    std::optional<Match> find(std::string_view text, size_t start) const;

  private:
    static constexpr uint32_t kNoToken = UINT32_MAX;

    std::optional<Match> match_at(std::string_view text, size_t begin) const;

    std::array<bool, 256> is_first_byte_{};
    std::vector<uint32_t> node_ids_ = {kNoToken};      // Token that ends at each node.
    std::unordered_map<uint64_t, uint32_t> children_;  // node << 8 | byte
};

}  // namespace afd::model
