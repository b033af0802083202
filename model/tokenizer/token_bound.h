// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenBound: how many tokens a text has at least, from its bytes alone. It is for refusing a text
// that cannot fit before anything is spent on it: one pass, no memory, no UTF-8 needed.
//
// Where tokens are spans of the text, a token that covers byte b is at most as long as the longest
// one with b in it, L(b). So n bytes b are at least n / L(b) tokens between them; the sum over all
// b, each rounded down, is never too high.
//
// Where the text is changed first, tokens are spans of something else; all that is known is how
// many bytes of the text one of their bytes may stand for.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
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

    // Tokens are spans of a changed text, of which a byte stands for at most `bytes_max` bytes of
    // the text that is asked about; 0: for any number.
    void set_changed(uint64_t bytes_max) {
        is_changed_ = true;
        changed_bytes_max_ = bytes_max;
    }

    // Some tokens take any number of blanks beside them along.
    void set_takes_blanks() { takes_blanks_ = true; }

    // At least so many tokens are in `text`.
    uint64_t tokens_min(std::string_view text) const {
        std::array<uint64_t, 256> counts{};
        for (const char c : text) ++counts[static_cast<unsigned char>(c)];
        if (takes_blanks_) forget_blanks(counts);
        if (is_changed_) return changed_tokens_min(counts);
        uint64_t tokens = 0;
        for (size_t byte = 0; byte < counts.size(); ++byte) {
            tokens += counts[byte] / std::max<size_t>(1, longest_[byte]);
        }
        return tokens;
    }

  private:
    static void forget_blanks(std::array<uint64_t, 256>& counts) {
        std::fill(counts.begin() + 0x09, counts.begin() + 0x0E, 0);
        counts[' '] = 0;
        // Any of these may belong to a blank beyond ASCII.
        std::fill(counts.begin() + 0x80, counts.end(), 0);
    }

    uint64_t changed_tokens_min(const std::array<uint64_t, 256>& counts) const {
        const uint64_t num_bytes = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
        const size_t longest = *std::max_element(longest_.begin(), longest_.end());
        const uint64_t span_max = changed_bytes_max_ * std::max<size_t>(1, longest);
        return span_max == 0 ? 0 : num_bytes / span_max;
    }

    std::array<size_t, 256> longest_{};
    bool is_changed_ = false;
    bool takes_blanks_ = false;
    uint64_t changed_bytes_max_ = 1;
};

}  // namespace afd::model
