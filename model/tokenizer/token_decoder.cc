// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/token_decoder.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/tokenizer_keys.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using nlohmann::json;

const char* const kServedDecoders =
    "ByteLevel; or Replaces or Metaspace, then ByteFallback, Fuse, Strip";

constexpr uint64_t kStripMax = 1024;

// The byte that an entry <0xE4> stands for.
std::optional<char> byte_of_entry(std::string_view entry) {
    if (entry.size() != 6 || !entry.starts_with("<0x") || entry.back() != '>') return std::nullopt;
    unsigned byte = 0;
    const char* const end = entry.data() + 5;
    const auto parsed = std::from_chars(entry.data() + 3, end, byte, 16);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
    return static_cast<char>(byte);
}

std::string with_sign_replaced(std::string_view text,
                               std::string_view sign,
                               std::string_view content) {
    std::string out;
    size_t at = text.find(sign);
    while (at != std::string_view::npos) {
        out += text.substr(0, at);
        out += content;
        text.remove_prefix(at + sign.size());
        at = text.find(sign);
    }
    return out += text;
}

}  // namespace

Result<TokenDecoder> TokenDecoder::parse(const json& json, const std::string& origin) {
    TokenDecoder decoder;
    AFD_TRY(decoder.read(json, origin));
    return decoder;
}

Result<> TokenDecoder::read(const json& json, const std::string& origin) {
    const std::string type = json_string(json_member(json, "type"));
    const auto& steps = json_member(json, "decoders");
    if (type == "Sequence" && steps.is_array() && !steps.empty()) {
        for (const auto& step : steps) AFD_TRY(read(step, origin));
        return {};
    }
    const bool is_text = has_byte_fallback_ || !metaspace_.empty() || !replaces_.empty();
    const bool is_per_token = !is_byte_level_ && !is_fused_;
    if (type == "ByteLevel" && !is_text && is_per_token) {
        is_byte_level_ = true;
    } else if (type == "Fuse" && !is_fused_) {
        is_fused_ = true;
    } else if (type == "ByteFallback" && is_per_token && !has_byte_fallback_) {
        has_byte_fallback_ = true;
    } else if (type == "Replace" && is_per_token && !has_byte_fallback_ && metaspace_.empty()) {
        return read_replace(json, origin);
    } else if (type == "Metaspace" && is_per_token && !is_text) {
        return read_metaspace(json, origin);
    } else if (type == "Strip" && is_fused_ && strip_.count == 0) {
        return read_strip(json, origin);
    } else {
        return unserved_key(origin, "decoder", json, kServedDecoders);
    }
    return {};
}

Result<> TokenDecoder::read_replace(const json& json, const std::string& origin) {
    const auto& given = json_member(json, "pattern");
    const std::string expression = json_string(json_member(given, "Regex"));
    const std::string literal = json_string(json_member(given, "String"));
    const auto& content = json_member(json, "content");
    if (!content.is_string() || (expression.empty() && literal.empty())) {
        return unserved_key(origin, "decoder", json, kServedDecoders);
    }
    if (!literal.empty()) {
        replaces_.push_back({TextPattern::literal(literal), json_string(content)});
        return {};
    }
    auto pattern = TextPattern::expression(expression);
    if (!pattern.ok()) {
        return Error{pattern.error().code, origin + ": decoder: " + pattern.error().message};
    }
    replaces_.push_back({std::move(pattern).value(), json_string(content)});
    return {};
}

Result<> TokenDecoder::read_metaspace(const json& json, const std::string& origin) {
    AFD_ASSIGN(metaspace_, metaspace_sign(json, origin + ": decoder"));
    AFD_ASSIGN(const bool has_prefix, json_flag(json, "add_prefix_space", true, origin));
    drops_first_ = has_prefix && json_member(json, "prepend_scheme") != "never";
    return {};
}

Result<> TokenDecoder::read_strip(const json& json, const std::string& origin) {
    const auto& start = json_member(json, "start");
    const auto& stop = json_member(json, "stop");
    const std::string content = json_string(json_member(json, "content"));
    const bool is_served = start.is_number_unsigned() && start.get<uint64_t>() <= kStripMax &&
                           stop == 0 && !content.empty() &&
                           next_character(content).size == content.size();
    if (!is_served) {
        return unserved_key(
            origin, "decoder", json, "Strip of one character, start up to 1024, stop 0");
    }
    strip_ = {content, start.get<uint64_t>()};
    return {};
}

Result<TokenPiece> TokenDecoder::piece(std::string_view entry) {
    TokenPiece piece{TokenPiece::Kind::kText, std::string(entry)};
    if (is_byte_level_) {
        // Added tokens need not be written in stand-ins.
        if (auto bytes = bytes_of_stand_ins(entry)) piece.bytes = std::move(*bytes);
        return piece;
    }
    for (Replace& replace : replaces_) {
        AFD_ASSIGN(piece.bytes,
                   replace.pattern.replaced(
                       piece.bytes, replace.content, replaced_bytes_max(entry.size())));
    }
    if (!metaspace_.empty()) piece.bytes = with_sign_replaced(piece.bytes, metaspace_, " ");
    if (const auto byte = byte_of_entry(piece.bytes); byte && has_byte_fallback_) {
        piece = {TokenPiece::Kind::kByte, std::string(1, *byte)};
    }
    return piece;
}

std::string TokenDecoder::first_piece(std::string_view entry) const {
    return with_sign_replaced(entry, metaspace_, "");
}

}  // namespace afd::model
