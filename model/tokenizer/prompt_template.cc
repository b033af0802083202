// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/prompt_template.h"

#include <nlohmann/json.hpp>

#include "model/json/json_document.h"
#include "model/tokenizer/tokenizer_keys.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using nlohmann::json;

// Models have one or two; each of them costs a search through the vocabulary.
constexpr size_t kPromptTokensMax = 64;

// `add_key` says whether there is a token, `token_key` which.
Result<> read_flag(const json& config,
                   const char* add_key,
                   const char* token_key,
                   std::vector<std::string>& tokens,
                   const std::string& origin) {
    const json& is_added = json_member(config, add_key);
    if (is_added == false) tokens.clear();
    if (is_added != true) return {};
    const json& token = json_member(config, token_key);
    const std::string name = json_string(token.is_object() ? json_member(token, "content") : token);
    if (name.empty()) {
        return broken_file(
            origin, fmt::format("{} is true, but {} is {}", add_key, token_key, json_shown(token)));
    }
    tokens.assign(1, name);
    return {};
}

}  // namespace

Result<PromptTemplate> PromptTemplate::parse(const json& post_processor,
                                             const std::string& origin) {
    PromptTemplate prompt;
    if (!post_processor.is_null()) AFD_TRY(prompt.read(post_processor, origin));
    return prompt;
}

Result<> PromptTemplate::read(const json& processor, const std::string& origin) {
    const std::string type = json_string(json_member(processor, "type"));
    if (type == "ByteLevel") return {};
    if (type == "TemplateProcessing") return read_template(processor, origin);
    const auto& steps = json_member(processor, "processors");
    if (type != "Sequence" || !steps.is_array()) {
        return unserved_key(origin,
                            "post_processor",
                            processor,
                            "null, ByteLevel, TemplateProcessing and a Sequence of these");
    }
    for (const auto& step : steps) AFD_TRY(read(step, origin));
    return {};
}

Result<> PromptTemplate::read_template(const json& processor, const std::string& origin) {
    const auto& items = json_member(processor, "single");
    if (!items.is_array() || !start.empty() || !end.empty()) {
        return unserved_key(origin, "post_processor", processor, "one template of a single text");
    }
    int num_texts = 0;
    for (const auto& item : items) {
        const std::string token = json_string(json_member(json_member(item, "SpecialToken"), "id"));
        if (!token.empty()) {
            (num_texts == 0 ? start : end).push_back(token);
        } else if (json_member(item, "Sequence").is_object()) {
            ++num_texts;
        } else {
            return broken_file(origin, "post_processor.single holds " + json_shown(item));
        }
    }
    if (num_texts == 1 && start.size() + end.size() <= kPromptTokensMax) return {};
    return unserved_key(
        origin,
        "post_processor.single",
        items,
        fmt::format("special tokens and one Sequence; at most {} tokens", kPromptTokensMax));
}

Result<> PromptTemplate::apply_config(std::string_view config_text, const std::string& origin) {
    if (config_text.empty()) return {};
    AFD_ASSIGN(const json config, parse_json(config_text, origin));
    AFD_TRY(read_flag(config, "add_bos_token", "bos_token", start, origin));
    return read_flag(config, "add_eos_token", "eos_token", end, origin);
}

}  // namespace afd::model
