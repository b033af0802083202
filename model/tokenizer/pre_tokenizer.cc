// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/pre_tokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "model/tokenizer/tokenizer_keys.h"
#include "model/unicode/new_characters.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using nlohmann::json;

// Pieces for which scratch is kept from one text to the next: ordinary prompts have fewer.
constexpr size_t kKeptPreTokensMax = 65536;
constexpr size_t kKeptTextBytesMax = size_t{1} << 20;
// A file has any number of steps; those of models have six.
constexpr size_t kNestedStepsMax = 16;

// What ByteLevel with use_regex does, as the tokenizers library documents it (the split of GPT-2).
constexpr const char* kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// What the library's Punctuation step takes for punctuation: ASCII's, and the categories P of
// Unicode 8, which its tables are of. Found by asking it about every code point.
constexpr const char* kPunctuation =
    R"((?![\x{61D}\x{9FD}\x{A76}\x{C77}\x{C84}\x{1B4E}\x{1B4F}\x{1B7D}-\x{1B7F}\x{2E43}-\x{2E4F})"
    R"(\x{2E52}-\x{2E5D}\x{10D6E}\x{10EAD}\x{10F55}-\x{10F59}\x{10F86}-\x{10F89})"
    R"(\x{113D4}-\x{113D8}\x{1144B}-\x{1144F}\x{1145A}-\x{1145B}\x{1145D}\x{11660}-\x{1166C})"
    R"(\x{116B9}\x{1183B}\x{11944}-\x{11946}\x{119E2}\x{11A3F}-\x{11A46}\x{11A9A}-\x{11A9C})"
    R"(\x{11A9E}-\x{11AA2}\x{11B00}-\x{11B09}\x{11BE1}\x{11C41}-\x{11C45}\x{11C70}-\x{11C71})"
    R"(\x{11EF7}-\x{11EF8}\x{11F43}-\x{11F4F}\x{11FFF}\x{12FF1}-\x{12FF2}\x{16D6D}-\x{16D6F})"
    R"(\x{16E97}-\x{16E9A}\x{16FE2}\x{1E5FF}\x{1E95E}-\x{1E95F}]))"
    R"([\p{P}!-/:-@\[-`{-~\x{166D}\x{111C9}])";

const char* const kServedSteps =
    "Sequence, Split, Digits, Punctuation, Metaspace, ByteLevel (as the last)";

Result<SplitBehavior> read_behavior(const json& step,
                                    const char* fallback,
                                    const std::string& origin) {
    const json& name = json_member(step, "behavior");
    const auto behavior = split_behavior(name.is_null() ? fallback : json_string(name));
    if (behavior) return *behavior;
    return unserved_key(origin,
                        "behavior of " + json_string(json_member(step, "type")),
                        name,
                        "Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext");
}

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const json& json, const std::string& origin) {
    PreTokenizer pre_tokenizer;
    if (!json.is_null()) AFD_TRY(pre_tokenizer.read(json, origin));
    pre_tokenizer.first_nested_ = pre_tokenizer.first_nested_step();
    pre_tokenizer.cuts_.resize(pre_tokenizer.steps_.size());
    return pre_tokenizer;
}

Result<> PreTokenizer::read(const json& json, const std::string& origin) {
    const std::string type = json_string(json_member(json, "type"));
    // The steps after it would see the library's stand-ins for bytes, not text.
    if (is_byte_level_) {
        return unserved_key(origin, "the step of pre_tokenizer after ByteLevel", json, "none");
    }
    if (type == "Split") return read_split(json, origin);
    if (type == "Digits") return read_digits(json, origin);
    if (type == "Punctuation") return read_punctuation(json, origin);
    if (type == "Metaspace") return read_metaspace(json, origin);
    if (type == "ByteLevel") return read_byte_level(json, origin);
    const auto& steps = json_member(json, "pretokenizers");
    if (type != "Sequence" || !steps.is_array()) {
        return unserved_key(origin, "a step of pre_tokenizer", json, kServedSteps);
    }
    for (const auto& step : steps) AFD_TRY(read(step, origin));
    return {};
}

Result<> PreTokenizer::add_split(const std::string& expression,
                                 SplitBehavior behavior,
                                 bool is_inverted,
                                 const std::string& origin) {
    auto pattern = TextPattern::expression(expression);
    if (!pattern.ok()) {
        return Error{pattern.error().code, origin + ": pre_tokenizer: " + pattern.error().message};
    }
    steps_.emplace_back(Splitter(std::move(pattern).value(), behavior, is_inverted));
    return {};
}

Result<> PreTokenizer::read_split(const json& json, const std::string& origin) {
    AFD_ASSIGN(const SplitBehavior behavior, read_behavior(json, "", origin));
    AFD_ASSIGN(const bool is_inverted, json_flag(json, "invert", false, origin + ": Split"));
    const auto& pattern = json_member(json, "pattern");
    const std::string expression = json_string(json_member(pattern, "Regex"));
    const std::string literal = json_string(json_member(pattern, "String"));
    if (!expression.empty()) return add_split(expression, behavior, is_inverted, origin);
    if (literal.empty()) {
        return unserved_key(origin,
                            "pattern of Split",
                            pattern,
                            "{\"Regex\": \"...\"} or {\"String\": \"...\"}, not empty");
    }
    steps_.emplace_back(Splitter(TextPattern::literal(literal), behavior, is_inverted));
    return {};
}

Result<> PreTokenizer::read_digits(const json& json, const std::string& origin) {
    AFD_ASSIGN(const bool is_individual,
               json_flag(json, "individual_digits", false, origin + ": Digits"));
    // Numbers of Unicode 17, which Split's expressions do not know, are numbers here.
    const std::string digit = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";
    return add_split(is_individual ? digit : digit + "+", SplitBehavior::kIsolated, false, origin);
}

Result<> PreTokenizer::read_punctuation(const json& json, const std::string& origin) {
    AFD_ASSIGN(const SplitBehavior behavior, read_behavior(json, "Isolated", origin));
    return add_split(kPunctuation, behavior, false, origin);
}

Result<> PreTokenizer::read_metaspace(const json& json, const std::string& origin) {
    const std::string place = origin + ": Metaspace";
    Prefix prefix;
    prefix.replaces = true;
    AFD_ASSIGN(prefix.sign, metaspace_sign(json, origin));
    AFD_ASSIGN(const bool has_prefix, json_flag(json, "add_prefix_space", true, place));
    AFD_ASSIGN(const bool is_split, json_flag(json, "split", true, place));
    const auto& scheme = json_member(json, "prepend_scheme");
    if (!has_prefix && !scheme.is_null() && scheme != "never") {
        return broken_file(
            place, "add_prefix_space is false, but prepend_scheme is " + json_shown(scheme));
    }
    if (scheme == "first") {
        prefix.where = Prefix::Where::kFirst;
    } else if (scheme == "always" || (scheme.is_null() && has_prefix)) {
        prefix.where = Prefix::Where::kAlways;
    } else if (scheme != "never" && !scheme.is_null()) {
        return unserved_key(place, "prepend_scheme", scheme, "always, first, never");
    }
    const std::string sign = prefix.sign;
    steps_.emplace_back(std::move(prefix));
    if (is_split) {
        steps_.emplace_back(
            Splitter(TextPattern::literal(sign), SplitBehavior::kMergedWithNext, false));
    }
    return {};
}

Result<> PreTokenizer::read_byte_level(const json& json, const std::string& origin) {
    const std::string place = origin + ": ByteLevel";
    AFD_ASSIGN(const bool has_prefix, json_flag(json, "add_prefix_space", false, place));
    AFD_ASSIGN(const bool is_split, json_flag(json, "use_regex", true, place));
    if (has_prefix) steps_.emplace_back(Prefix{" ", false, Prefix::Where::kAlways});
    if (is_split) {
        AFD_TRY(add_split(kGpt2Expression, SplitBehavior::kIsolated, false, origin));
    }
    is_byte_level_ = true;
    return {};
}

bool PreTokenizer::keeps_text() const {
    for (const Step& step : steps_) {
        const auto* splitter = std::get_if<Splitter>(&step);
        if (splitter == nullptr || splitter->removes_text()) return false;
    }
    return true;
}

bool PreTokenizer::keeps_all() const {
    for (const Step& step : steps_) {
        const auto* splitter = std::get_if<Splitter>(&step);
        if (splitter != nullptr && splitter->removes_text()) return false;
    }
    return true;
}

size_t PreTokenizer::first_nested_step() const {
    size_t first = steps_.size();
    while (first > 0 && steps_.size() - first < kNestedStepsMax &&
           std::holds_alternative<Splitter>(steps_[first - 1])) {
        --first;
    }
    return first;
}

Result<> PreTokenizer::cut(std::string_view text,
                           bool begins_prompt,
                           std::vector<std::string_view>& pieces) {
    pieces.clear();
    if (!text.empty()) pieces.push_back(text);
    Known known{.begins_prompt = begins_prompt, .is_old = !has_new_characters(text)};
    for (size_t i = 0; i < first_nested_; ++i) AFD_TRY(run_on_all(steps_[i], known, pieces));
    if (first_nested_ == steps_.size()) return {};
    return cut_nested(known.is_old, pieces);
}

Result<> PreTokenizer::run_on_all(Step& step, Known& known, std::vector<std::string_view>& pieces) {
    if (const auto* prefix = std::get_if<Prefix>(&step)) {
        known.is_old = known.is_old && !has_new_characters(prefix->sign);
        write_prefixes(*prefix, known.begins_prompt, pieces);
        return {};
    }
    auto& splitter = std::get<Splitter>(step);
    pieces_.swap(pieces);
    pieces.clear();
    for (const std::string_view piece : pieces_) {
        AFD_TRY(splitter.split(piece, pieces, known.is_old));
    }
    // Where the first piece was taken out the next one is not what the prompt begins with.
    if (splitter.removes_text() && !pieces.empty()) {
        known.begins_prompt =
            known.begins_prompt && pieces.front().data() == pieces_.front().data();
    }
    return {};
}

Result<> PreTokenizer::cut_nested(bool is_old, std::vector<std::string_view>& pieces) {
    pieces_.swap(pieces);
    pieces.clear();
    for (const std::string_view piece : pieces_) {
        AFD_TRY(cut_piece(first_nested_, piece, is_old, pieces));
    }
    return {};
}

// The splits from number `step` on, all of them before the next piece: most pieces are words that
// came before, and need none.
Result<> PreTokenizer::cut_piece(size_t step,
                                 std::string_view piece,
                                 bool is_old,
                                 std::vector<std::string_view>& pieces) {
    auto& splitter = std::get<Splitter>(steps_[step]);
    const bool is_short = piece.size() <= WholePieces::kPieceBytesMax;
    if (is_short && whole_pieces_.has(step, piece)) {
        pieces.push_back(piece);
        return {};
    }
    const size_t num_before = pieces.size();
    if (step + 1 == steps_.size()) {
        AFD_TRY(splitter.split(piece, pieces, is_old));
    } else {
        std::vector<std::string_view>& cuts = cuts_[step];
        cuts.clear();
        AFD_TRY(splitter.split(piece, cuts, is_old));
        for (const std::string_view cut : cuts) AFD_TRY(cut_piece(step + 1, cut, is_old, pieces));
    }
    const bool is_whole = pieces.size() == num_before + 1 && pieces.back().size() == piece.size();
    if (is_short && is_whole) whole_pieces_.keep(step, piece);
    return {};
}

void PreTokenizer::trim() {
    if (pieces_.capacity() > kKeptPreTokensMax) std::vector<std::string_view>().swap(pieces_);
    for (auto& cuts : cuts_) {
        if (cuts.capacity() > kKeptPreTokensMax) std::vector<std::string_view>().swap(cuts);
    }
    if (text_.capacity() > kKeptTextBytesMax) std::string().swap(text_);
    if (next_text_.capacity() > kKeptTextBytesMax) std::string().swap(next_text_);
}

void PreTokenizer::write_prefixes(const Prefix& prefix,
                                  bool begins_prompt,
                                  std::vector<std::string_view>& pieces) {
    // The pieces may be views of what an earlier step wrote.
    next_text_.clear();
    std::vector<size_t> ends;
    ends.reserve(pieces.size());
    for (const std::string_view piece : pieces) {
        const bool is_first = begins_prompt && ends.empty();
        const bool has_sign =
            piece.starts_with(prefix.sign) || (prefix.replaces && piece.starts_with(' '));
        const bool is_asked = prefix.where == Prefix::Where::kAlways ||
                              (prefix.where == Prefix::Where::kFirst && is_first);
        if (is_asked && !has_sign) next_text_ += prefix.sign;
        for (const char c : piece) {
            if (prefix.replaces && c == ' ') {
                next_text_ += prefix.sign;
            } else {
                next_text_ += c;
            }
        }
        ends.push_back(next_text_.size());
    }
    text_.swap(next_text_);
    size_t begin = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
        pieces[i] = std::string_view(text_).substr(begin, ends[i] - begin);
        begin = ends[i];
    }
}

}  // namespace afd::model
