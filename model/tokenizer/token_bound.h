// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenBound: how many tokens a text has at least, from its bytes alone. It is for refusing a text
// that cannot fit before anything is spent on it: one pass, no memory, no UTF-8 needed.
//
// Tokens are spans of the text (no normalizer changes it), and a token that covers byte b is at
// most as long as the longest one with b in it, L(b). So n bytes b are at least n / L(b) tokens
// between them; the sum over all b, each rounded down, is never too high.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace afd::model {

class TokenBound {
  public:
    // Every token that encoding may give: of the vocabulary, and added ones with their content.
    void add(std::string_view token_bytes) {
        for (const char c : token_bytes) {
            size_t& longest = longest_[static_cast<unsigned char>(c)];
            longest = std::max(longest, token_bytes.size());
        }
    }

    // At least so many tokens are in `text`.
    uint64_t tokens_min(std::string_view text) const {
        std::array<uint64_t, 256> counts{};
        for (const char c : text) ++counts[static_cast<unsigned char>(c)];
        uint64_t tokens = 0;
        for (size_t byte = 0; byte < counts.size(); ++byte) {
            tokens += counts[byte] / std::max<size_t>(1, longest_[byte]);
        }
        return tokens;
    }

  private:
    std::array<size_t, 256> longest_{};
};

}  // namespace afd::model
