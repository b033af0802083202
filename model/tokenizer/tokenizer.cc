// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/tokenizer.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "model/checkpoint/json_document.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/byte_pair_encoder.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/text_hash.h"
#include "model/tokenizer/tiktoken_file.h"
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

template <typename Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

}  // namespace

struct Tokenizer::Impl {
    explicit Impl(TokenizerFile& file)
        : normalizer(std::move(file.normalizer)),
          pre_tokenizer(std::move(file.pre_tokenizer)),
          decoder(std::move(file.decoder)),
          ignore_merges(file.ignore_merges),
          is_cut_into_parts(file.is_cut_into_parts) {}

    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    TokenDecoder decoder;
    bool ignore_merges;
    bool is_cut_into_parts;
    AddedTokens raw_tokens;
    AddedTokens normalized_tokens;
    BytePairEncoder encoder;
    TokenBound bound;
    std::vector<uint32_t> prompt_start;
    std::vector<uint32_t> prompt_end;
    TextMap<uint32_t> ids;                                  // By bytes in the text.
    std::vector<TokenPiece> pieces;                         // By id.
    std::unordered_map<uint32_t, TokenPiece> first_pieces;  // Those that differ.
    TextMap<std::vector<uint32_t>> cache;
    std::vector<std::string_view> cut_text;  // Scratch.

    static Result<Tokenizer> create(TokenizerFile& file, const std::string& origin);
    Result<> set_added_tokens(const TokenizerFile& file);
    Result<> set_vocab(const TokenizerFile& file, const std::string& origin);
    Result<> set_bytes(const TokenizerFile& file, const std::string& origin);
    Result<> set_merges(const TokenizerFile& file, const std::string& origin);
    void set_all_merges();
    Result<> set_pieces(const TokenizerFile& file);
    Result<> set_prompt(const TokenizerFile& file, const std::string& origin);
    void set_bound(const TokenizerFile& file);

    // The text of an entry of the vocabulary or of the merges; nothing if it has none.
    std::optional<std::string> text_of(const std::string& entry) const {
        if (pre_tokenizer.is_byte_level()) return bytes_of_stand_ins(entry);
        return entry;
    }

    template <typename EncodeGap>
    static Result<> walk(const AddedTokens& tokens,
                         std::string_view text,
                         std::vector<uint32_t>& out,
                         EncodeGap encode_gap);
    Result<> encode_raw(std::string_view text, bool begins_prompt, std::vector<uint32_t>& out);
    Result<> encode_text(std::string_view text, bool begins_prompt, std::vector<uint32_t>& out);
    void encode_piece(std::string_view piece, std::vector<uint32_t>& out);
    void trim();
};

Result<> Tokenizer::Impl::set_added_tokens(const TokenizerFile& file) {
    for (const AddedToken& token : file.added_tokens) {
        if (!token.is_normalized) {
            raw_tokens.add(token.content, token.id, token.options);
            continue;
        }
        AFD_ASSIGN(const std::string content, normalizer.normalized(token.content));
        if (content.empty()) continue;
        normalized_tokens.add(content, token.id, token.options);
        // It may be longer than the content that set_bound() adds.
        bound.add(content);
    }
    return {};
}

Result<> Tokenizer::Impl::set_vocab(const TokenizerFile& file, const std::string& origin) {
    std::unordered_map<std::string_view, uint32_t> added;
    for (const AddedToken& token : file.added_tokens) added.emplace(token.content, token.id);
    for (const auto& [entry, id] : file.vocab) {
        const auto at = added.find(entry);
        if (at != added.end() && at->second != id) {
            return data_loss("{}: token \"{}\" has id {} in added_tokens and {} in model.vocab",
                             with(origin, entry, at->second, id));
        }
        auto text = text_of(entry);
        if (!text && at == added.end()) {
            return unimplemented(
                "{}: model.vocab: token \"{}\" is not written in the byte alphabet of ByteLevel, "
                "and is no added token",
                with(origin, entry));
        }
        if (!text || text->empty()) continue;
        const bool is_character = next_character(*text).size == text->size();
        if (is_character && !pre_tokenizer.is_byte_level()) encoder.set_character(*text, id);
        ids.emplace(std::move(*text), id);
    }
    return set_bytes(file, origin);
}

Result<> Tokenizer::Impl::set_bytes(const TokenizerFile& file, const std::string& origin) {
    const bool is_byte_level = pre_tokenizer.is_byte_level();
    if (!is_byte_level && !file.has_byte_fallback) {
        return unimplemented(
            "{}: model.byte_fallback is false and pre_tokenizer has no ByteLevel; supported: one "
            "of them, so that every text has tokens",
            with(origin));
    }
    for (unsigned value = 0; value < 256; ++value) {
        const auto byte = static_cast<uint8_t>(value);
        const auto at = ids.find(is_byte_level ? std::string(1, static_cast<char>(byte))
                                               : fmt::format("<0x{:02X}>", value));
        if (at != ids.end()) {
            encoder.set_byte(byte, at->second);
        } else if (is_in_utf8(byte)) {
            return unimplemented(
                "{}: model.vocab has no token for byte {} (\"{}\"); supported: vocabularies with "
                "all bytes that UTF-8 uses",
                with(origin,
                     value,
                     is_byte_level ? byte_stand_in(byte) : fmt::format("<0x{:02X}>", value)));
        }
    }
    return {};
}

Result<> Tokenizer::Impl::set_merges(const TokenizerFile& file, const std::string& origin) {
    const auto find = [this](const std::string& entry) -> const uint32_t* {
        const auto text = text_of(entry);
        const auto at = text ? ids.find(*text) : ids.end();
        return at == ids.end() ? nullptr : &at->second;
    };
    for (size_t rank = 0; rank < file.merges.size(); ++rank) {
        const auto& [left, right] = file.merges[rank];
        const uint32_t* left_id = find(left);
        const uint32_t* right_id = find(right);
        const uint32_t* merged_id = find(left + right);
        if (left_id == nullptr || right_id == nullptr || merged_id == nullptr) {
            return data_loss(
                "{}: model.merges: \"{} {}\" names or makes a token that model.vocab does not have",
                with(origin, left, right));
        }
        encoder.add_merge(*left_id, *right_id, *merged_id, static_cast<uint32_t>(rank));
    }
    return {};
}

void Tokenizer::Impl::set_all_merges() {
    for (const auto& [text, id] : ids) {
        const std::string_view whole = text;
        for (size_t size = 1; size < whole.size(); ++size) {
            const auto left = ids.find(whole.substr(0, size));
            if (left == ids.end()) continue;
            const auto right = ids.find(whole.substr(size));
            if (right != ids.end()) encoder.add_merge(left->second, right->second, id, id);
        }
    }
}

Result<> Tokenizer::Impl::set_pieces(const TokenizerFile& file) {
    uint32_t id_max = 0;
    for (const AddedToken& token : file.added_tokens) id_max = std::max(id_max, token.id);
    for (const auto& [entry, id] : file.vocab) id_max = std::max(id_max, id);
    pieces.resize(size_t{id_max} + 1);
    const auto set = [this](const std::string& entry, uint32_t id) -> Result<> {
        AFD_ASSIGN(pieces[id], decoder.piece(entry));
        if (!decoder.treats_first_otherwise() || pieces[id].kind == TokenPiece::Kind::kByte) {
            return {};
        }
        TokenPiece first{TokenPiece::Kind::kText, decoder.first_piece(entry)};
        if (first.bytes != pieces[id].bytes) first_pieces.insert_or_assign(id, std::move(first));
        return {};
    };
    for (const auto& [entry, id] : file.vocab) AFD_TRY(set(entry, id));
    for (const AddedToken& token : file.added_tokens) {
        if (token.is_special) {
            pieces[token.id] = {};
            first_pieces.erase(token.id);
        } else if (token.is_normalized) {
            AFD_ASSIGN(const std::string content, normalizer.normalized(token.content));
            AFD_TRY(set(content, token.id));
        } else {
            AFD_TRY(set(token.content, token.id));
        }
    }
    return {};
}

Result<> Tokenizer::Impl::set_prompt(const TokenizerFile& file, const std::string& origin) {
    const auto find = [&](const std::string& name) -> const uint32_t* {
        for (const AddedToken& token : file.added_tokens) {
            if (token.content == name) return &token.id;
        }
        for (const auto& [entry, id] : file.vocab) {
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
                    with(origin, name));
            }
            found.push_back(*id);
        }
        return {};
    };
    AFD_TRY(look_up(file.prompt.start, prompt_start));
    return look_up(file.prompt.end, prompt_end);
}

void Tokenizer::Impl::set_bound(const TokenizerFile& file) {
    for (const auto& [text, id] : ids) bound.add(text);
    for (const AddedToken& token : file.added_tokens) {
        bound.add(token.content);
        if (token.options.strips_left || token.options.strips_right) bound.set_takes_blanks();
    }
    if (!normalizer.is_empty() || !pre_tokenizer.keeps_text()) {
        bound.set_changed(pre_tokenizer.keeps_all() ? normalizer.shrinks_by_at_most() : 0);
    }
}

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

// What lies between added tokens of the raw text.
Result<> Tokenizer::Impl::encode_raw(std::string_view text,
                                     bool begins_prompt,
                                     std::vector<uint32_t>& out) {
    std::string normal;
    if (!normalizer.is_empty()) {
        AFD_ASSIGN(normal, normalizer.normalized(text));
        text = normal;
    }
    return walk(normalized_tokens, text, out, [&](std::string_view gap) {
        return encode_text(gap, begins_prompt && gap.data() == text.data(), out);
    });
}

Result<> Tokenizer::Impl::encode_text(std::string_view text,
                                      bool begins_prompt,
                                      std::vector<uint32_t>& out) {
    AFD_TRY(pre_tokenizer.cut(text, begins_prompt, cut_text));
    for (const std::string_view piece : cut_text) encode_piece(piece, out);
    return {};
}

void Tokenizer::Impl::encode_piece(std::string_view piece, std::vector<uint32_t>& out) {
    const auto whole = ignore_merges ? ids.find(piece) : ids.end();
    if (whole != ids.end()) {
        out.push_back(whole->second);
        return;
    }
    if (piece.size() > kCachedPieceBytesMax) {
        encoder.encode(piece, out);
        return;
    }
    auto at = cache.find(piece);
    if (at == cache.end()) {
        // All at once: keeping an order of use would cost every piece, and the cache fills up again
        // soon.
        if (cache.size() == kCachedPiecesMax) cache.clear();
        at = cache.try_emplace(std::string(piece)).first;
        encoder.encode(piece, at->second);
    }
    out.insert(out.end(), at->second.begin(), at->second.end());
}

void Tokenizer::Impl::trim() {
    pre_tokenizer.trim();
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
    return Impl::create(file, origin);
}

Result<Tokenizer> Tokenizer::parse_tiktoken(std::string_view text,
                                            std::string_view config_text,
                                            const std::string& origin) {
    AFD_ASSIGN(TokenizerFile file, parse_tiktoken_file(text, config_text, origin));
    return Impl::create(file, origin);
}

Result<Tokenizer> Tokenizer::Impl::create(TokenizerFile& file, const std::string& origin) {
    auto impl = std::make_unique<Impl>(file);
    AFD_TRY(impl->set_added_tokens(file));
    AFD_TRY(impl->set_vocab(file, origin));
    AFD_TRY(impl->set_merges(file, origin));
    if (file.merges_all_tokens) impl->set_all_merges();
    AFD_TRY(impl->set_pieces(file));
    AFD_TRY(impl->set_prompt(file, origin));
    impl->set_bound(file);
    return Tokenizer(std::move(impl));
}

Result<std::vector<uint32_t>> Tokenizer::encode(std::string_view text) {
    // The patterns trust it: they are told not to check.
    if (!is_valid_utf8(text)) {
        return invalid_argument("the text is not valid UTF-8");
    }
    std::vector<uint32_t> out;
    Result<> result;
    for (const std::string_view part :
         impl_->is_cut_into_parts ? tiktoken_parts(text) : std::vector{text}) {
        if (!result.ok()) break;
        result = Impl::walk(impl_->raw_tokens, part, out, [&](std::string_view gap) {
            return impl_->encode_raw(gap, gap.data() == text.data(), out);
        });
    }
    impl_->trim();
    if (!result.ok()) return result.error();
    return out;
}

uint64_t Tokenizer::tokens_min(std::string_view text) const {
    return impl_->bound.tokens_min(text);
}

std::span<const uint32_t> Tokenizer::prompt_start() const {
    return impl_->prompt_start;
}

std::span<const uint32_t> Tokenizer::prompt_end() const {
    return impl_->prompt_end;
}

std::string Tokenizer::decode(std::span<const uint32_t> ids) const {
    StreamDecoder decoder(*this);
    std::string text;
    for (const uint32_t id : ids) text += decoder.append(id);
    return text + decoder.finish();
}

const TokenPiece& Tokenizer::piece(uint32_t id) const {
    static const TokenPiece kNoPiece;
    return id < impl_->pieces.size() ? impl_->pieces[id] : kNoPiece;
}

const TokenPiece& Tokenizer::first_piece(uint32_t id) const {
    const auto at = impl_->first_pieces.find(id);
    return at == impl_->first_pieces.end() ? piece(id) : at->second;
}

const TokenDecoder& Tokenizer::decoder() const {
    return impl_->decoder;
}

uint32_t Tokenizer::size() const {
    return static_cast<uint32_t>(impl_->pieces.size());
}

}  // namespace afd::model
