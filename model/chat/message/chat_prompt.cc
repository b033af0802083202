// SPDX-License-Identifier: Apache-2.0
#include "model/chat/message/chat_prompt.h"

namespace afd::model {

ChatPrompt& ChatPrompt::token(std::string_view text) {
    if (!text.empty()) pieces_.push_back({true, std::string(text)});
    return *this;
}

ChatPrompt& ChatPrompt::text(std::string_view text) {
    if (text.empty()) return *this;
    if (pieces_.empty() || pieces_.back().is_token) pieces_.push_back({false, {}});
    pieces_.back().text += text;
    return *this;
}

ChatPrompt& ChatPrompt::markup(std::string_view text) {
    while (!text.empty()) {
        const size_t begin = text.find('<');
        this->text(text.substr(0, begin));
        if (begin == std::string_view::npos) break;
        const size_t end = text.find('>', begin);
        if (end == std::string_view::npos) return this->text(text.substr(begin));
        token(text.substr(begin, end + 1 - begin));
        text.remove_prefix(end + 1);
    }
    return *this;
}

std::string ChatPrompt::to_text() const {
    std::string text;
    for (const Piece& piece : pieces_) text += piece.text;
    return text;
}

Result<std::vector<uint32_t>> ChatPrompt::encode(Tokenizer& tokenizer) const {
    std::vector<uint32_t> ids;
    std::string text;
    const auto encode_text = [&]() -> Result<> {
        // As a token of the text itself would.
        if (!ids.empty()) text.erase(0, tokenizer.blanks_taken(ids.back(), text));
        if (text.empty()) return {};
        AFD_ASSIGN(const std::vector<uint32_t> found, tokenizer.encode_plain(text, ids.empty()));
        ids.insert(ids.end(), found.begin(), found.end());
        text.clear();
        return {};
    };
    for (const Piece& piece : pieces_) {
        const auto id = piece.is_token ? tokenizer.added_token(piece.text) : std::nullopt;
        if (!id) {
            // What is no token for this tokenizer is text, and merges with the text beside it.
            text += piece.text;
            continue;
        }
        AFD_TRY(encode_text());
        ids.push_back(*id);
    }
    AFD_TRY(encode_text());
    return ids;
}

}  // namespace afd::model
