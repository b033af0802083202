// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/tokenizer.h"

#include <utility>

#include "model/json/json_document.h"
#include "model/tokenizer/piece_cache.h"
#include "model/tokenizer/tiktoken_file.h"
#include "model/tokenizer/tokenizer_file.h"
#include "model/tokenizer/tokenizer_tables.h"
#include "model/unicode/character_kind.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// The largest vocabularies known take some 30 MB.
constexpr size_t kFileBytesMax = size_t{256} << 20;
// Pieces for which scratch is kept from one text to the next: ordinary prompts have fewer.
constexpr size_t kKeptPiecesMax = 65536;

}  // namespace

struct Tokenizer::Impl {
    explicit Impl(TokenizerTables made) : tables(std::move(made)) {}

    TokenizerTables tables;
    PieceCache cache;
    std::vector<std::string_view> cut_text;  // Scratch.

    template <typename EncodeGap>
    static Result<> walk(const AddedTokens& tokens,
                         std::string_view text,
                         std::vector<uint32_t>& out,
                         EncodeGap encode_gap);
    Result<std::string_view> normalized(std::string_view text, std::string& room);
    Result<std::vector<uint32_t>> encode(const AddedTokenTables& added,
                                         std::string_view text,
                                         bool begins_prompt);
    Result<> encode_raw(const AddedTokens& normalized_tokens,
                        std::string_view text,
                        bool begins_prompt,
                        std::vector<uint32_t>& out);
    Result<> encode_text(std::string_view text, bool begins_prompt, std::vector<uint32_t>& out);
    void encode_piece(std::string_view piece, std::vector<uint32_t>& out);
    void encode_short(std::string_view piece, std::vector<uint32_t>& out);
    void trim();
};

template <typename EncodeGap>
Result<> Tokenizer::Impl::walk(const AddedTokens& tokens,
                               std::string_view text,
                               std::vector<uint32_t>& out,
                               EncodeGap encode_gap) {
    size_t done = 0;
    while (const auto match = tokens.find(text, done)) {
        if (match->begin > done) AFD_TRY(encode_gap(text.substr(done, match->begin - done)));
        out.push_back(match->id);
        done = match->end;
    }
    if (done == text.size()) return {};
    return encode_gap(text.substr(done));
}

// The text itself, or in `room` what the normalizer makes of it.
Result<std::string_view> Tokenizer::Impl::normalized(std::string_view text, std::string& room) {
    if (tables.normalizer.is_empty()) return text;
    AFD_ASSIGN(room, tables.normalizer.normalized(text));
    return std::string_view(room);
}

Result<std::vector<uint32_t>> Tokenizer::Impl::encode(const AddedTokenTables& added,
                                                      std::string_view text,
                                                      bool begins_prompt) {
    // The patterns trust it: they are told not to check.
    if (!is_valid_utf8(text)) return invalid_argument("the text is not valid UTF-8");
    std::vector<uint32_t> out;
    Result<> result;
    for (const std::string_view part :
         tables.is_cut_into_parts ? tiktoken_parts(text) : std::vector{text}) {
        if (!result.ok()) break;
        result = walk(added.raw, part, out, [&](std::string_view gap) {
            const bool is_first = begins_prompt && gap.data() == text.data();
            return encode_raw(added.normalized, gap, is_first, out);
        });
    }
    trim();
    if (!result.ok()) return result.error();
    return out;
}

// What lies between added tokens of the raw text.
Result<> Tokenizer::Impl::encode_raw(const AddedTokens& normalized_tokens,
                                     std::string_view text,
                                     bool begins_prompt,
                                     std::vector<uint32_t>& out) {
    std::string room;
    AFD_ASSIGN(text, normalized(text, room));
    return walk(normalized_tokens, text, out, [&](std::string_view gap) {
        return encode_text(gap, begins_prompt && gap.data() == text.data(), out);
    });
}

Result<> Tokenizer::Impl::encode_text(std::string_view text,
                                      bool begins_prompt,
                                      std::vector<uint32_t>& out) {
    AFD_TRY(tables.pre_tokenizer.cut(text, begins_prompt, cut_text));
    for (const std::string_view piece : cut_text) encode_piece(piece, out);
    return {};
}

void Tokenizer::Impl::encode_piece(std::string_view piece, std::vector<uint32_t>& out) {
    if (piece.size() <= PieceCache::kPieceBytesMax) {
        encode_short(piece, out);
        return;
    }
    const auto whole = tables.ignore_merges ? tables.ids.find(piece) : tables.ids.end();
    if (whole != tables.ids.end()) {
        out.push_back(whole->second);
        return;
    }
    while (!piece.empty()) {
        const size_t size = tables.encoder.first_part(piece);
        const std::string_view part = piece.substr(0, size);
        size <= PieceCache::kPieceBytesMax ? encode_short(part, out)
                                           : tables.encoder.encode(part, out);
        piece.remove_prefix(size);
    }
}

void Tokenizer::Impl::encode_short(std::string_view piece, std::vector<uint32_t>& out) {
    if (cache.find(piece, out)) return;
    const size_t num_before = out.size();
    const auto whole = tables.ignore_merges ? tables.ids.find(piece) : tables.ids.end();
    if (whole != tables.ids.end()) {
        out.push_back(whole->second);
    } else {
        tables.encoder.encode(piece, out);
    }
    cache.keep(piece, std::span(out).subspan(num_before));
}

void Tokenizer::Impl::trim() {
    tables.pre_tokenizer.trim();
    if (cut_text.capacity() > kKeptPiecesMax) std::vector<std::string_view>().swap(cut_text);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& directory) {
    const std::string path = directory + "/tokenizer.json";
    const std::string tiktoken_path = directory + "/tiktoken.model";
    auto config = read_text_file(directory + "/tokenizer_config.json", kFileBytesMax);
    if (!config.ok() && config.error().code != Code::kNotFound) return config.error();
    const std::string config_text = config.ok() ? config.value() : std::string();
    const auto text = read_text_file(path, kFileBytesMax);
    if (text.ok()) return parse(text.value(), config_text, path);
    const auto tiktoken = read_text_file(tiktoken_path, kFileBytesMax);
    const bool has_neither = !tiktoken.ok() && tiktoken.error().code == Code::kNotFound;
    if (text.error().code != Code::kNotFound || has_neither) return text.error();
    if (!tiktoken.ok()) return tiktoken.error();
    return parse_tiktoken(tiktoken.value(), config_text, tiktoken_path);
}

Result<Tokenizer> Tokenizer::parse(std::string_view text,
                                   std::string_view config_text,
                                   const std::string& origin) {
    AFD_ASSIGN(TokenizerFile file, parse_tokenizer_file(text, config_text, origin));
    AFD_ASSIGN(TokenizerTables tables, TokenizerTables::create(file, origin));
    return Tokenizer(std::make_unique<Impl>(std::move(tables)));
}

Result<Tokenizer> Tokenizer::parse_tiktoken(std::string_view text,
                                            std::string_view config_text,
                                            const std::string& origin) {
    AFD_ASSIGN(TokenizerFile file, parse_tiktoken_file(text, config_text, origin));
    AFD_ASSIGN(TokenizerTables tables, TokenizerTables::create(file, origin));
    return Tokenizer(std::make_unique<Impl>(std::move(tables)));
}

Result<std::vector<uint32_t>> Tokenizer::encode(std::string_view text) {
    return impl_->encode(impl_->tables.added, text, true);
}

Result<std::vector<uint32_t>> Tokenizer::encode_plain(std::string_view text, bool begins_prompt) {
    return impl_->encode(impl_->tables.plain_added, text, begins_prompt);
}

std::optional<uint32_t> Tokenizer::added_token(std::string_view text) const {
    const auto at = impl_->tables.added_ids.find(text);
    if (at == impl_->tables.added_ids.end()) return std::nullopt;
    return at->second;
}

size_t Tokenizer::blanks_taken(uint32_t added_token, std::string_view text) const {
    return impl_->tables.taking_ids.contains(added_token) ? blanks_at_start(text) : 0;
}

uint64_t Tokenizer::tokens_min(std::string_view text) const {
    return impl_->tables.bound.tokens_min(text);
}

std::span<const uint32_t> Tokenizer::prompt_start() const {
    return impl_->tables.prompt_start;
}

std::span<const uint32_t> Tokenizer::prompt_end() const {
    return impl_->tables.prompt_end;
}

const TokenPiece& Tokenizer::piece(uint32_t id) const {
    static const TokenPiece kNoPiece;
    return id < impl_->tables.pieces.size() ? impl_->tables.pieces[id] : kNoPiece;
}

const TokenPiece& Tokenizer::first_piece(uint32_t id) const {
    const auto at = impl_->tables.first_pieces.find(id);
    return at == impl_->tables.first_pieces.end() ? piece(id) : at->second;
}

const std::string& Tokenizer::special_text(uint32_t id) const {
    static const std::string kNone;
    const auto at = impl_->tables.special_texts.find(id);
    return at == impl_->tables.special_texts.end() ? kNone : at->second;
}

const TokenDecoder& Tokenizer::decoder() const {
    return impl_->tables.decoder;
}

uint32_t Tokenizer::size() const {
    return static_cast<uint32_t>(impl_->tables.pieces.size());
}

}  // namespace afd::model
