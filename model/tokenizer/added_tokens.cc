// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/added_tokens.h"

#include <algorithm>

#include "model/unicode/character_kind.h"

namespace afd::model {

void AddedTokens::add(std::string_view content, uint32_t id, AddedTokenOptions options) {
    is_first_byte_[static_cast<unsigned char>(content.front())] = true;
    uint64_t node = 0;
    for (const char c : content) {
        const auto [at, is_new] = children_.try_emplace(node << 8 | static_cast<unsigned char>(c),
                                                        static_cast<uint32_t>(node_tokens_.size()));
        if (is_new) node_tokens_.push_back(kNoToken);
        node = at->second;
    }
    if (node_tokens_[node] != kNoToken) return;
    node_tokens_[node] = static_cast<uint32_t>(tokens_.size());
    tokens_.push_back({id, options});
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t start) const {
    if (tokens_.empty()) return std::nullopt;
    for (size_t begin = start; begin < text.size(); ++begin) {
        // Nearly every byte of a text ends here.
        if (!is_first_byte_[static_cast<unsigned char>(text[begin])]) continue;
        const auto found = longest_at(text, begin);
        if (!found) continue;
        const AddedTokenOptions& options = found->token->options;
        if (options.is_whole_word && (ends_with_word_character(text.substr(0, begin)) ||
                                      begins_with_word_character(text.substr(found->end)))) {
            begin = found->end - 1;
            continue;
        }
        Match match{begin, found->end, found->token->id};
        if (options.strips_left) {
            match.begin -= blanks_at_end(text.substr(start, begin - start));
        }
        if (options.strips_right) match.end += blanks_at_start(text.substr(found->end));
        return match;
    }
    return std::nullopt;
}

std::optional<AddedTokens::Found> AddedTokens::longest_at(std::string_view text,
                                                          size_t begin) const {
    std::optional<Found> longest;
    uint64_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
        const auto at = children_.find(node << 8 | static_cast<unsigned char>(text[i]));
        if (at == children_.end()) break;
        node = at->second;
        if (node_tokens_[node] != kNoToken) longest = {i + 1, &tokens_[node_tokens_[node]]};
    }
    return longest;
}

}  // namespace afd::model
