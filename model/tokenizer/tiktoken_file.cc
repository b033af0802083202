// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/tiktoken_file.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "model/json/json_document.h"
#include "model/json/other_format.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/tokenizer_keys.h"
#include "model/unicode/character_kind.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

constexpr uint32_t kNumSpecialTokens = 256;
// Far more than any token known; what two tokens make it of is tried at every byte.
constexpr size_t kTokenBytesMax = 4096;
constexpr size_t kPartCharactersMax = 400000;
constexpr size_t kRunCharactersMax = 25000;

constexpr const char* kUpper = R"(\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}])";
constexpr const char* kLower = R"(\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}])";
constexpr const char* kEndings = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)";

std::string kimi_expression() {
    const std::string upper = std::string("[") + kUpper + "]";
    const std::string lower = std::string("[") + kLower + "]";
    const std::string before = R"([^\r\n\p{L}\p{N}]?)";
    return R"([\p{Han}]+|)" + before + upper + "*" + lower + "+" + kEndings + "|" + before + upper +
           "+" + lower + "*" + kEndings +
           R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

std::optional<uint32_t> sextet(char c) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t at = kDigits.find(c);
    if (at == std::string_view::npos) return std::nullopt;
    return static_cast<uint32_t>(at);
}

// Nothing if `text` is no base64.
std::optional<std::string> from_base64(std::string_view text) {
    if (text.empty() || text.size() % 4 != 0) return std::nullopt;
    const size_t num_padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    std::string bytes;
    uint32_t bits = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool is_padding = i + num_padding >= text.size();
        const auto value = is_padding ? std::optional<uint32_t>(0) : sextet(text[i]);
        if (!value) return std::nullopt;
        bits = bits << 6 | *value;
        if (i % 4 != 3) continue;
        for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift);
        bits = 0;
    }
    bytes.resize(bytes.size() - num_padding);
    return bytes;
}

// A token's bytes in stand-ins, as TokenizerFile has them, and its rank.
std::optional<std::pair<std::string, uint32_t>> read_line(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    const auto bytes = from_base64(line.substr(0, space));
    const std::string_view number = line.substr(space + 1);
    uint32_t rank = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), rank);
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == number.data() + number.size();
    if (!bytes || bytes->size() > kTokenBytesMax || !is_number ||
        rank > kTokenIdMax - kNumSpecialTokens)
        return std::nullopt;
    std::string entry;
    for (const char c : *bytes) entry += byte_stand_in(static_cast<uint8_t>(c));
    return std::pair(std::move(entry), rank);
}

Result<> read_lines(std::string_view text, TokenizerFile& file, const std::string& origin) {
    std::unordered_set<uint32_t> ranks;
    for (size_t number = 1; !text.empty(); ++number) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty()) continue;
        auto token = read_line(line);
        if (!token) {
            const std::string other = other_format_text(line, "list of tokens");
            if (number == 1 && !other.empty()) return broken_file(origin, other);
            return broken_file(origin,
                               fmt::format("line {} is no token in base64 and its rank", number));
        }
        if (!ranks.insert(token->second).second) {
            return broken_file(origin,
                               fmt::format("line {} repeats rank {}", number, token->second));
        }
        file.vocab.push_back(std::move(*token));
    }
    return {};
}

Result<> add_special_tokens(std::string_view config_text,
                            TokenizerFile& file,
                            const std::string& origin) {
    uint32_t first = 0;
    for (const auto& [entry, rank] : file.vocab) first = std::max(first, rank + 1);
    nlohmann::json config;
    if (!config_text.empty()) {
        AFD_ASSIGN(config, parse_json(config_text, origin + " (tokenizer_config.json)"));
    }
    const auto& named = json_member(config, "added_tokens_decoder");
    for (uint32_t id = first; id < first + kNumSpecialTokens; ++id) {
        const auto& entry = json_member(named, std::to_string(id).c_str());
        AddedToken token;
        token.id = id;
        token.content = json_string(json_member(entry, "content"));
        if (token.content.empty()) token.content = fmt::format("<|reserved_token_{}|>", id);
        token.is_special = json_member(entry, "special") != false;
        file.added_tokens.push_back(std::move(token));
    }
    return {};
}

// As Python's str.isspace(), which Kimi's own tokenizer asks.
bool is_python_blank(std::string_view character) {
    const bool is_separator = character.front() >= 0x1C && character.front() <= 0x1F;
    return is_separator || blanks_at_start(character) > 0;
}

}  // namespace

Result<TokenizerFile> parse_tiktoken_file(std::string_view text,
                                          std::string_view config_text,
                                          const std::string& origin) {
    TokenizerFile file;
    AFD_TRY(read_lines(text, file, origin));
    AFD_TRY(add_special_tokens(config_text, file, origin));
    const nlohmann::json byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const nlohmann::json split = {
        {"type", "Split"}, {"pattern", {{"Regex", kimi_expression()}}}, {"behavior", "Isolated"}};
    AFD_ASSIGN(file.pre_tokenizer,
               PreTokenizer::parse({{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}},
                                   origin));
    AFD_ASSIGN(file.decoder, TokenDecoder::parse(byte_level, origin));
    file.ignore_merges = true;
    file.merges_all_tokens = true;
    file.is_cut_into_parts = true;
    AFD_TRY(file.prompt.apply_config(config_text, origin + " (tokenizer_config.json)"));
    return file;
}

std::vector<std::string_view> tiktoken_parts(std::string_view text) {
    // Of fewer bytes there cannot be more characters.
    if (text.size() <= kRunCharactersMax) return {text};
    std::vector<std::string_view> parts;
    size_t begin = 0;
    size_t part_size = 0;
    size_t run_size = 0;
    bool is_run_blank = false;
    for (size_t at = 0; at < text.size();) {
        const size_t size = next_character(text.substr(at)).size;
        const bool is_blank_now = is_python_blank(text.substr(at, size));
        if (part_size == kPartCharactersMax) {
            parts.push_back(text.substr(begin, at - begin));
            begin = at;
            part_size = run_size = 0;
        }
        if (run_size == 0 || is_blank_now != is_run_blank) {
            run_size = 0;
            is_run_blank = is_blank_now;
        } else if (run_size == kRunCharactersMax) {
            parts.push_back(text.substr(begin, at - begin));
            begin = at;
            run_size = 0;
        }
        ++run_size;
        ++part_size;
        at += size;
    }
    parts.push_back(text.substr(begin));
    return parts;
}

}  // namespace afd::model
