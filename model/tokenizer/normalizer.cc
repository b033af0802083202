// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/normalizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "model/tokenizer/tokenizer_keys.h"
#include "model/unicode/unicode_form.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using nlohmann::json;

// A character of one byte comes from one of at most four. A longer one is composed of at most four
// code points, each of which comes from one of at most four bytes: 16 bytes for two.
constexpr uint64_t kFormShrinksBy = 8;
// The Kelvin sign, of three bytes, becomes k.
constexpr uint64_t kLowercaseShrinksBy = 3;

}  // namespace

void Normalizer::shrink(uint64_t by) {
    // A bound that no text reaches is none.
    constexpr uint64_t kShrinksByMax = uint64_t{1} << 30;
    shrinks_by_ = by > kShrinksByMax || shrinks_by_ * by > kShrinksByMax ? 0 : shrinks_by_ * by;
}

Result<Normalizer> Normalizer::parse(const json& json, const std::string& origin) {
    Normalizer normalizer;
    if (!json.is_null()) AFD_TRY(normalizer.read(json, origin));
    return normalizer;
}

Result<> Normalizer::read(const json& json, const std::string& origin) {
    const std::string type = json_string(json_member(json, "type"));
    if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
        const bool is_composed = type.back() == 'C';
        const bool is_compatible = type.size() == 4;
        if (is_composed) steps_.emplace_back(is_compatible ? Form::kNfkc : Form::kNfc);
        if (!is_composed) steps_.emplace_back(is_compatible ? Form::kNfkd : Form::kNfd);
        shrink(kFormShrinksBy);
        return {};
    }
    if (type == "Lowercase") {
        steps_.emplace_back(Lowercase{});
        shrink(kLowercaseShrinksBy);
        return {};
    }
    if (type == "Prepend" && json_member(json, "prepend").is_string()) {
        steps_.emplace_back(Prepend{json_string(json_member(json, "prepend"))});
        return {};
    }
    if (type == "Replace") return read_replace(json, origin);
    const auto& steps = json_member(json, "normalizers");
    if (type != "Sequence" || !steps.is_array()) {
        return unserved_key(origin,
                            "a step of normalizer",
                            json,
                            "null, Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Prepend and Replace");
    }
    for (const auto& step : steps) AFD_TRY(read(step, origin));
    return {};
}

Result<> Normalizer::read_replace(const json& json, const std::string& origin) {
    const auto& given = json_member(json, "pattern");
    const std::string expression = json_string(json_member(given, "Regex"));
    const std::string literal = json_string(json_member(given, "String"));
    const std::string content = json_string(json_member(json, "content"));
    if (!json_member(json, "content").is_string() || (expression.empty() && literal.empty())) {
        return unserved_key(
            origin,
            "a step of normalizer",
            json,
            "Replace with content and a pattern {\"Regex\": \"...\"} or {\"String\": \"...\"}");
    }
    if (!literal.empty()) {
        steps_.emplace_back(Replace{TextPattern::literal(literal), content});
        // Of text that becomes nothing no byte tells.
        const uint64_t by = content.empty() ? 0 : (literal.size() - 1) / content.size() + 1;
        shrink(by);
        return {};
    }
    auto pattern = TextPattern::expression(expression);
    if (!pattern.ok()) {
        return Error{pattern.error().code, origin + ": normalizer: " + pattern.error().message};
    }
    steps_.emplace_back(Replace{std::move(pattern).value(), content});
    shrink(0);
    return {};
}

Result<std::string> Normalizer::normalized(std::string_view text) {
    std::string out(text);
    for (Step& step : steps_) AFD_TRY(run(step, replaced_bytes_max(text.size()), out));
    return out;
}

Result<> Normalizer::run(Step& step, size_t bytes_max, std::string& text) {
    if (auto* replacing = std::get_if<Replace>(&step)) {
        AFD_ASSIGN(text, replacing->pattern.replaced(text, replacing->content, bytes_max));
    } else if (const auto* prepending = std::get_if<Prepend>(&step)) {
        if (!text.empty()) text.insert(0, prepending->text);
    } else if (const auto* form = std::get_if<Form>(&step)) {
        text = in_form(text,
                       {.is_compatible = *form == Form::kNfkc || *form == Form::kNfkd,
                        .is_composed = *form == Form::kNfc || *form == Form::kNfkc});
    } else {
        text = in_lower_case(text);
    }
    return {};
}

}  // namespace afd::model
