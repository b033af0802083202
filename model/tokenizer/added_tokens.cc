// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/added_tokens.h"

namespace afd::model {

void AddedTokens::add(std::string_view content, uint32_t id) {
    is_first_byte_[static_cast<unsigned char>(content.front())] = true;
    uint64_t node = 0;
    for (const char c : content) {
        const auto [at, is_new] = children_.try_emplace(node << 8 | static_cast<unsigned char>(c),
                                                        static_cast<uint32_t>(node_ids_.size()));
        if (is_new) node_ids_.push_back(kNoToken);
        node = at->second;
    }
    // Of equal contents the first one counts.
    if (node_ids_[node] == kNoToken) node_ids_[node] = id;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t start) const {
    for (size_t begin = start; begin < text.size(); ++begin) {
        // Nearly every byte of a text ends here.
        if (!is_first_byte_[static_cast<unsigned char>(text[begin])]) continue;
        if (const auto match = match_at(text, begin)) return match;
    }
    return std::nullopt;
}

std::optional<AddedTokens::Match> AddedTokens::match_at(std::string_view text, size_t begin) const {
    std::optional<Match> longest;
    uint64_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
        const auto at = children_.find(node << 8 | static_cast<unsigned char>(text[i]));
        if (at == children_.end()) break;
        node = at->second;
        if (node_ids_[node] != kNoToken) longest = {begin, i + 1 - begin, node_ids_[node]};
    }
    return longest;
}

}  // namespace afd::model
