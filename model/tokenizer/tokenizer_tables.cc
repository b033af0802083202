// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/tokenizer_tables.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "model/tokenizer/byte_alphabet.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// Whether an added token is text that anybody may write, such as a run of blanks: neither special
// nor written as the marks of templates are.
bool is_plain_text(const AddedToken& token) {
    return !token.is_special && token.content.find_first_of("<>[]|/") == std::string::npos &&
           token.content.find("｜") == std::string::npos;
}

class TablesBuilder {
  public:
    TablesBuilder(const TokenizerFile& file, const std::string& origin, TokenizerTables& tables)
        : file_(file), origin_(origin), tables_(tables) {}

    Result<> build() {
        AFD_TRY(set_added_tokens());
        AFD_TRY(set_vocab());
        AFD_TRY(set_merges());
        set_joints();
        if (file_.merges_all_tokens) set_all_merges();
        AFD_TRY(set_pieces());
        AFD_TRY(set_prompt());
        set_bound();
        return {};
    }

  private:
    Result<> set_added_tokens();
    Result<> add_token(const AddedToken& token, AddedTokenTables& added);
    Result<> set_vocab();
    Result<> set_bytes();
    Result<> set_merges();
    void set_joints();
    void set_all_merges();
    Result<> set_pieces();
    Result<> set_prompt();
    void set_bound();

    // Whether the content of an added token only looks like stand-ins for bytes: they are not
    // UTF-8, and the vocabulary does not have them either.
    bool is_literal(const std::string& content, uint32_t id) const {
        if (!tables_.decoder.is_byte_level()) return false;
        const auto bytes = bytes_of_stand_ins(content);
        if (!bytes || is_valid_utf8(*bytes)) return false;
        const auto at = tables_.ids.find(*bytes);
        return at == tables_.ids.end() || at->second != id;
    }

    // The text of an entry of the vocabulary or of the merges; nothing if it has none.
    std::optional<std::string> text_of(const std::string& entry) const {
        if (tables_.pre_tokenizer.is_byte_level()) return bytes_of_stand_ins(entry);
        return entry;
    }

    const TokenizerFile& file_;
    const std::string& origin_;
    TokenizerTables& tables_;
};

Result<> TablesBuilder::set_added_tokens() {
    for (const AddedToken& token : file_.added_tokens) {
        tables_.added_ids.emplace(token.content, token.id);
        if (token.options.strips_right) tables_.taking_ids.insert(token.id);
        AFD_TRY(add_token(token, tables_.added));
        if (is_plain_text(token)) AFD_TRY(add_token(token, tables_.plain_added));
    }
    return {};
}

Result<> TablesBuilder::add_token(const AddedToken& token, AddedTokenTables& added) {
    if (!token.is_normalized) {
        added.raw.add(token.content, token.id, token.options);
        return {};
    }
    AFD_ASSIGN(const std::string content, tables_.normalizer.normalized(token.content));
    if (content.empty()) return {};
    added.normalized.add(content, token.id, token.options);
    // It may be longer than the content that set_bound() adds.
    tables_.bound.add(content);
    return {};
}

Result<> TablesBuilder::set_vocab() {
    std::unordered_map<std::string_view, uint32_t> added;
    for (const AddedToken& token : file_.added_tokens) added.emplace(token.content, token.id);
    for (const auto& [entry, id] : file_.vocab) {
        const auto at = added.find(entry);
        if (at != added.end() && at->second != id) {
            return data_loss("{}: token \"{}\" has id {} in added_tokens and {} in model.vocab",
                             with(origin_, entry, at->second, id));
        }
        auto text = text_of(entry);
        if (!text && at == added.end()) {
            return unimplemented(
                "{}: model.vocab: token \"{}\" is not written in the byte alphabet of ByteLevel, "
                "and is no added token",
                with(origin_, entry));
        }
        if (!text || text->empty()) continue;
        const bool is_character = next_character(*text).size == text->size();
        if (is_character && !tables_.pre_tokenizer.is_byte_level())
            tables_.encoder.set_character(*text, id);
        tables_.ids.emplace(std::move(*text), id);
    }
    return set_bytes();
}

Result<> TablesBuilder::set_bytes() {
    const bool is_byte_level = tables_.pre_tokenizer.is_byte_level();
    if (!is_byte_level && !file_.has_byte_fallback) {
        return unimplemented(
            "{}: model.byte_fallback is false and pre_tokenizer has no ByteLevel; supported: one "
            "of them, so that every text has tokens",
            with(origin_));
    }
    for (unsigned value = 0; value < 256; ++value) {
        const auto byte = static_cast<uint8_t>(value);
        const auto at = tables_.ids.find(is_byte_level ? std::string(1, static_cast<char>(byte))
                                                       : fmt::format("<0x{:02X}>", value));
        if (at != tables_.ids.end()) {
            tables_.encoder.set_byte(byte, at->second);
        } else if (is_in_utf8(byte)) {
            return unimplemented(
                "{}: model.vocab has no token for byte {} (\"{}\"); supported: vocabularies with "
                "all bytes that UTF-8 uses",
                with(origin_,
                     value,
                     is_byte_level ? byte_stand_in(byte) : fmt::format("<0x{:02X}>", value)));
        }
    }
    return {};
}

Result<> TablesBuilder::set_merges() {
    const auto find = [this](const std::string& entry) -> const uint32_t* {
        const auto text = text_of(entry);
        const auto at = text ? tables_.ids.find(*text) : tables_.ids.end();
        return at == tables_.ids.end() ? nullptr : &at->second;
    };
    for (size_t rank = 0; rank < file_.merges.size(); ++rank) {
        const auto& [left, right] = file_.merges[rank];
        const uint32_t* left_id = find(left);
        const uint32_t* right_id = find(right);
        const uint32_t* merged_id = find(left + right);
        if (left_id == nullptr || right_id == nullptr || merged_id == nullptr) {
            return data_loss(
                "{}: model.merges: \"{} {}\" names or makes a token that model.vocab does not have",
                with(origin_, left, right));
        }
        tables_.encoder.add_merge(*left_id, *right_id, *merged_id, static_cast<uint32_t>(rank));
    }
    return {};
}

// Only for vocabularies of characters: pieces of the others are words, and nearly every pair of
// bytes is joined by some merge. And not where a token may be more than what merges make.
void TablesBuilder::set_joints() {
    if (tables_.pre_tokenizer.is_byte_level() || tables_.ignore_merges) return;
    // A byte that stands for a part of a character is no character.
    const auto is_byte = [](std::string_view text) {
        return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
    };
    for (const auto& [left, right] : file_.merges) {
        const std::string_view end =
            std::string_view(left).substr(left.size() - std::min<size_t>(left.size(), 6));
        if (is_byte(end) || is_byte(std::string_view(right).substr(0, 6))) return;
    }
    for (const auto& [left, right] : file_.merges) {
        size_t last = left.size() - 1;
        while (last > 0 && (static_cast<uint8_t>(left[last]) & 0xC0U) == 0x80U) --last;
        const size_t first = next_character(right).size;
        tables_.encoder.add_joint(std::string_view(left).substr(last),
                                  std::string_view(right).substr(0, first));
    }
}

void TablesBuilder::set_all_merges() {
    for (const auto& [text, id] : tables_.ids) {
        const std::string_view whole = text;
        for (size_t size = 1; size < whole.size(); ++size) {
            const auto left = tables_.ids.find(whole.substr(0, size));
            if (left == tables_.ids.end()) continue;
            const auto right = tables_.ids.find(whole.substr(size));
            if (right != tables_.ids.end())
                tables_.encoder.add_merge(left->second, right->second, id, id);
        }
    }
}

Result<> TablesBuilder::set_pieces() {
    uint32_t id_max = 0;
    for (const AddedToken& token : file_.added_tokens) id_max = std::max(id_max, token.id);
    for (const auto& [entry, id] : file_.vocab) id_max = std::max(id_max, id);
    tables_.pieces.resize(size_t{id_max} + 1);
    const auto set = [this](const std::string& entry, uint32_t id) -> Result<> {
        AFD_ASSIGN(tables_.pieces[id], tables_.decoder.piece(entry));
        if (!tables_.decoder.treats_first_otherwise() ||
            tables_.pieces[id].kind == TokenPiece::Kind::kByte) {
            return {};
        }
        TokenPiece first{TokenPiece::Kind::kText, tables_.decoder.first_piece(entry)};
        if (first.bytes != tables_.pieces[id].bytes)
            tables_.first_pieces.insert_or_assign(id, std::move(first));
        return {};
    };
    for (const auto& [entry, id] : file_.vocab) AFD_TRY(set(entry, id));
    for (const AddedToken& token : file_.added_tokens) {
        if (token.is_special) {
            tables_.pieces[token.id] = {};
            tables_.special_texts.insert_or_assign(token.id, token.content);
            tables_.first_pieces.erase(token.id);
            continue;
        }
        std::string content = token.content;
        if (token.is_normalized) {
            AFD_ASSIGN(content, tables_.normalizer.normalized(token.content));
        }
        if (is_literal(content, token.id)) {
            tables_.pieces[token.id] = {TokenPiece::Kind::kText, content};
        } else {
            AFD_TRY(set(content, token.id));
        }
    }
    return {};
}

Result<> TablesBuilder::set_prompt() {
    const auto find = [&](const std::string& name) -> const uint32_t* {
        for (const AddedToken& token : file_.added_tokens) {
            if (token.content == name) return &token.id;
        }
        for (const auto& [entry, id] : file_.vocab) {
            if (entry == name) return &id;
        }
        return nullptr;
    };
    const auto look_up = [&](const std::vector<std::string>& names,
                             std::vector<uint32_t>& found) -> Result<> {
        for (const std::string& name : names) {
            const uint32_t* const id = find(name);
            if (id == nullptr) {
                return data_loss(
                    "{}: the prompt's token \"{}\" is in neither added_tokens nor model.vocab",
                    with(origin_, name));
            }
            found.push_back(*id);
        }
        return {};
    };
    AFD_TRY(look_up(file_.prompt.start, tables_.prompt_start));
    return look_up(file_.prompt.end, tables_.prompt_end);
}

void TablesBuilder::set_bound() {
    for (const auto& [text, id] : tables_.ids) tables_.bound.add(text);
    for (const AddedToken& token : file_.added_tokens) {
        tables_.bound.add(token.content);
        if (token.options.strips_left || token.options.strips_right)
            tables_.bound.set_takes_blanks();
    }
    if (!tables_.normalizer.is_empty() || !tables_.pre_tokenizer.keeps_text()) {
        tables_.bound.set_changed(
            tables_.pre_tokenizer.keeps_all() ? tables_.normalizer.shrinks_by_at_most() : 0);
    }
}

}  // namespace

Result<TokenizerTables> TokenizerTables::create(TokenizerFile& file, const std::string& origin) {
    TokenizerTables tables;
    tables.normalizer = std::move(file.normalizer);
    tables.pre_tokenizer = std::move(file.pre_tokenizer);
    tables.decoder = std::move(file.decoder);
    tables.ignore_merges = file.ignore_merges;
    tables.is_cut_into_parts = file.is_cut_into_parts;
    AFD_TRY(TablesBuilder(file, origin, tables).build());
    return tables;
}

}  // namespace afd::model
