// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "model/checkpoint/json_document.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/byte_pair_encoder.h"
#include "model/tokenizer/splitter.h"
#include "model/tokenizer/token_bound.h"
#include "model/tokenizer/tokenizer_file.h"
#include "model/tokenizer/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// The largest vocabularies known take some 30 MB.
constexpr size_t kFileBytesMax = size_t{256} << 20;
// Ordinary words are short and repeat; a few MB hold nearly all of a language.
constexpr size_t kCachedPieceBytesMax = 48;
constexpr size_t kCachedPiecesMax = 65536;
// Pieces for which scratch is kept from one text to the next: ordinary prompts have fewer.
constexpr size_t kKeptPiecesMax = 65536;

}  // namespace

struct Tokenizer::Impl {
    AddedTokens added_tokens;
    std::vector<Splitter> splitters;
    BytePairEncoder encoder;
    TokenBound bound;
    bool ignore_merges = false;
    std::optional<uint32_t> bos_id;
    std::unordered_map<std::string, uint32_t> ids;  // By bytes, without added tokens.
    std::vector<std::string> bytes;                 // By id; special tokens are empty.
    std::unordered_map<std::string, std::vector<uint32_t>> cache;
    std::vector<std::string_view> pieces;       // Scratch.
    std::vector<std::string_view> next_pieces;  // Scratch.

    Result<> set_vocab(const TokenizerFile& file, const std::string& origin);
    Result<> set_merges(const TokenizerFile& file, const std::string& origin);
    Result<> set_bos(const TokenizerFile& file, const std::string& origin);
    Result<> encode_text(std::string_view text, std::vector<uint32_t>& out);
    void encode_piece(std::string_view piece, std::vector<uint32_t>& out);
};

Result<> Tokenizer::Impl::set_vocab(const TokenizerFile& file, const std::string& origin) {
    uint32_t id_max = 0;
    std::unordered_map<std::string_view, uint32_t> added;
    for (const AddedToken& token : file.added_tokens) {
        id_max = std::max(id_max, token.id);
        added.emplace(token.content, token.id);
        added_tokens.add(token.content, token.id);
        bound.add(token.content);
    }
    for (const auto& [entry, id] : file.vocab) id_max = std::max(id_max, id);
    bytes.resize(size_t{id_max} + 1);
    for (const auto& [entry, id] : file.vocab) {
        // Added tokens are matched in the text before it is split, and are not in the byte
        // alphabet.
        if (const auto at = added.find(entry); at != added.end()) {
            if (at->second == id) continue;
            return data_loss("{}: token \"{}\" has id {} in added_tokens and {} in model.vocab",
                             with(origin, entry, at->second, id));
        }
        auto text = bytes_of_stand_ins(entry);
        if (!text) {
            return unimplemented(
                "{}: model.vocab: token \"{}\" is not written in the byte alphabet of ByteLevel, "
                "and is no added token",
                with(origin, entry));
        }
        bound.add(*text);
        bytes[id] = *text;
        ids.emplace(std::move(*text), id);
    }
    for (const AddedToken& token : file.added_tokens) {
        if (!token.is_special) bytes[token.id] = token.content;
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
        const auto at = ids.find(std::string(1, static_cast<char>(byte)));
        if (at == ids.end()) {
            if (!is_in_utf8(static_cast<uint8_t>(byte))) continue;
            return unimplemented(
                "{}: model.vocab has no token for byte {} (\"{}\"); supported: vocabularies with "
                "all bytes that UTF-8 uses",
                with(origin, byte, byte_stand_in(static_cast<uint8_t>(byte))));
        }
        encoder.set_byte(static_cast<uint8_t>(byte), at->second);
    }
    return {};
}

Result<> Tokenizer::Impl::set_merges(const TokenizerFile& file, const std::string& origin) {
    const auto find = [this](const std::optional<std::string>& text) -> const uint32_t* {
        const auto at = text ? ids.find(*text) : ids.end();
        return at == ids.end() ? nullptr : &at->second;
    };
    for (size_t rank = 0; rank < file.merges.size(); ++rank) {
        const auto& [left, right] = file.merges[rank];
        const uint32_t* left_id = find(bytes_of_stand_ins(left));
        const uint32_t* right_id = find(bytes_of_stand_ins(right));
        const uint32_t* merged_id = find(bytes_of_stand_ins(left + right));
        if (left_id == nullptr || right_id == nullptr || merged_id == nullptr) {
            return data_loss(
                "{}: model.merges: \"{} {}\" names or makes a token that model.vocab does not have",
                with(origin, left, right));
        }
        encoder.add_merge(*left_id, *right_id, *merged_id, static_cast<uint32_t>(rank));
    }
    ignore_merges = file.ignore_merges;
    return {};
}

Result<> Tokenizer::Impl::set_bos(const TokenizerFile& file, const std::string& origin) {
    if (!file.bos_token) return {};
    for (const AddedToken& token : file.added_tokens) {
        if (token.content == *file.bos_token) bos_id = token.id;
    }
    if (bos_id) return {};
    return data_loss("{}: the BOS token \"{}\" is not in added_tokens",
                     with(origin, *file.bos_token));
}

Result<> Tokenizer::Impl::encode_text(std::string_view text, std::vector<uint32_t>& out) {
    if (text.empty()) return {};
    pieces.assign(1, text);
    for (Splitter& splitter : splitters) {
        next_pieces.clear();
        for (const std::string_view piece : pieces) AFD_TRY(splitter.split(piece, next_pieces));
        std::swap(pieces, next_pieces);
    }
    for (const std::string_view piece : pieces) encode_piece(piece, out);
    for (auto* scratch : {&pieces, &next_pieces}) {
        if (scratch->capacity() > kKeptPiecesMax) std::vector<std::string_view>().swap(*scratch);
    }
    return {};
}

void Tokenizer::Impl::encode_piece(std::string_view piece, std::vector<uint32_t>& out) {
    std::string key(piece);
    const auto whole = ignore_merges ? ids.find(key) : ids.end();
    if (whole != ids.end()) {
        out.push_back(whole->second);
        return;
    }
    if (piece.size() > kCachedPieceBytesMax) {
        encoder.encode(piece, out);
        return;
    }
    auto at = cache.find(key);
    if (at == cache.end()) {
        // All at once: keeping an order of use would cost every piece, and the cache fills up again
        // soon.
        if (cache.size() == kCachedPiecesMax) cache.clear();
        at = cache.try_emplace(std::move(key)).first;
        encoder.encode(piece, at->second);
    }
    out.insert(out.end(), at->second.begin(), at->second.end());
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& directory) {
    const std::string path = directory + "/tokenizer.json";
    AFD_ASSIGN(const std::string text, read_text_file(path, kFileBytesMax));
    auto config = read_text_file(directory + "/tokenizer_config.json", kFileBytesMax);
    if (!config.ok() && config.error().code != Code::kNotFound) return config.error();
    return parse(text, config.ok() ? config.value() : std::string(), path);
}

Result<Tokenizer> Tokenizer::parse(std::string_view text,
                                   std::string_view config_text,
                                   const std::string& origin) {
    AFD_ASSIGN(const TokenizerFile file, parse_tokenizer_file(text, config_text, origin));
    auto impl = std::make_unique<Impl>();
    AFD_TRY(impl->set_vocab(file, origin));
    AFD_TRY(impl->set_merges(file, origin));
    AFD_TRY(impl->set_bos(file, origin));
    for (const std::string& pattern : file.split_patterns) {
        auto splitter = Splitter::compile(pattern);
        if (!splitter.ok()) {
            return Error{splitter.error().code,
                         origin + ": pre_tokenizer: " + splitter.error().message};
        }
        impl->splitters.push_back(std::move(splitter).value());
    }
    return Tokenizer(std::move(impl));
}

Result<std::vector<uint32_t>> Tokenizer::encode(std::string_view text) {
    // The splitter trusts it: it is told not to check.
    if (!is_valid_utf8(text)) {
        return invalid_argument("the text is not valid UTF-8");
    }
    std::vector<uint32_t> out;
    size_t done = 0;
    while (const auto match = impl_->added_tokens.find(text, done)) {
        AFD_TRY(impl_->encode_text(text.substr(done, match->begin - done), out));
        out.push_back(match->id);
        done = match->begin + match->size;
    }
    AFD_TRY(impl_->encode_text(text.substr(done), out));
    return out;
}

uint64_t Tokenizer::tokens_min(std::string_view text) const {
    return impl_->bound.tokens_min(text);
}

std::optional<uint32_t> Tokenizer::bos_id() const {
    return impl_->bos_id;
}

std::string Tokenizer::decode(std::span<const uint32_t> ids) const {
    StreamDecoder decoder(*this);
    std::string text;
    for (const uint32_t id : ids) text += decoder.append(id);
    return text + decoder.finish();
}

std::string_view Tokenizer::token_bytes(uint32_t id) const {
    return id < impl_->bytes.size() ? std::string_view(impl_->bytes[id]) : std::string_view();
}

uint32_t Tokenizer::size() const {
    return static_cast<uint32_t>(impl_->bytes.size());
}

std::string StreamDecoder::append(uint32_t id) {
    held_ += tokenizer_->token_bytes(id);
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

std::string StreamDecoder::finish() {
    const bool is_unfinished = !held_.empty();
    held_.clear();
    return is_unfinished ? std::string(kReplacementCharacter) : std::string();
}

}  // namespace afd::model
