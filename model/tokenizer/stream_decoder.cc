// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/stream_decoder.h"

#include <algorithm>

#include "model/unicode/utf8.h"

namespace afd::model {

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool keeps_special) const {
    StreamDecoder decoder(*this, keeps_special);
    std::string text;
    for (const uint32_t id : ids) text += decoder.append(id);
    return text + decoder.finish();
}

void StreamDecoder::follow(std::span<const uint32_t> ids) {
    const auto is_text = [this](uint32_t id) {
        return tokenizer_->piece(id).kind != TokenPiece::Kind::kNothing ||
               (keeps_special_ && !tokenizer_->special_text(id).empty());
    };
    // From the end: the last tokens of a prompt are text nearly always.
    if (!std::any_of(ids.rbegin(), ids.rend(), is_text)) return;
    is_first_ = false;
    num_to_strip_ = 0;
}

std::string StreamDecoder::append(uint32_t id) {
    const TokenPiece& piece = is_first_ ? tokenizer_->first_piece(id) : tokenizer_->piece(id);
    if (piece.kind == TokenPiece::Kind::kNothing) {
        return keeps_special_ ? special(tokenizer_->special_text(id)) : std::string();
    }
    is_first_ = false;
    if (!tokenizer_->decoder().has_byte_groups()) {
        held_ += piece.bytes;
        return stripped(take_whole_characters());
    }
    if (piece.kind == TokenPiece::Kind::kByte) {
        held_ += piece.bytes;
        return {};
    }
    return stripped(take_group() + piece.bytes);
}

std::string StreamDecoder::finish() {
    if (tokenizer_->decoder().has_byte_groups()) return stripped(take_group());
    const bool is_unfinished = !held_.empty();
    held_.clear();
    return is_unfinished ? std::string(kReplacementCharacter) : std::string();
}

// It is no part of a character: what was held back before it ends there. Behind it no blank is at
// the start of the text.
std::string StreamDecoder::special(const std::string& text) {
    if (text.empty()) return {};
    const std::string before = finish();
    is_first_ = false;
    num_to_strip_ = 0;
    return before + text;
}

std::string StreamDecoder::take_whole_characters() {
    std::string text;
    std::string_view rest = held_;
    while (!rest.empty()) {
        const Utf8Step step = next_character(rest);
        // The rest of the character may come with the next token; it is held back, not replaced.
        if (step.state == Utf8State::kUnfinished) break;
        text += step.state == Utf8State::kValid ? rest.substr(0, step.size) : kReplacementCharacter;
        rest.remove_prefix(step.size);
    }
    held_.erase(0, held_.size() - rest.size());
    return text;
}

std::string StreamDecoder::take_group() {
    std::string text;
    if (is_valid_utf8(held_)) {
        text.swap(held_);
    } else {
        for (size_t i = 0; i < held_.size(); ++i) text += kReplacementCharacter;
    }
    held_.clear();
    return text;
}

std::string StreamDecoder::stripped(std::string text) {
    const std::string& character = tokenizer_->decoder().strip().character;
    while (num_to_strip_ > 0 && !text.empty()) {
        // The first other character ends it.
        if (!text.starts_with(character)) num_to_strip_ = 1;
        if (text.starts_with(character)) text.erase(0, character.size());
        --num_to_strip_;
    }
    return text;
}

}  // namespace afd::model
