// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/tokenizer_file.h"

#include <nlohmann/json.hpp>

#include "model/checkpoint/json_document.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

// What ByteLevel with use_regex does, as the tokenizers library documents it (the split of GPT-2).
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const Json& member(const Json& object, const char* key) {
    // Null for whatever is not there: a chain of lookups needs no test at each step.
    static const Json kNull;
    if (!object.is_object()) return kNull;
    const auto at = object.find(key);
    return at == object.end() ? kNull : *at;
}

std::string text_of(const Json& value) {
    return value.is_string() ? value.get<std::string>() : std::string();
}

std::string shown(const Json& value) {
    constexpr size_t kShownMax = 120;
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= kShownMax ? text : text.substr(0, kShownMax) + "...";
}

Error unserved(const std::string& origin,
               const std::string& key,
               const Json& value,
               const std::string& supported) {
    return unimplemented("{}: {} is {}; supported: {}", with(origin, key, shown(value), supported));
}

Error broken(const std::string& origin, const std::string& what) {
    return data_loss("{}: {}", with(origin, what));
}

// `key` of `object` must be false or absent.
Result<> refuse_flag(const Json& object, const char* key, const std::string& origin) {
    const Json& value = member(object, key);
    if (value.is_null() || value == false) return {};
    return unserved(origin, key, value, "false");
}

Result<uint32_t> read_id(const Json& value, const std::string& token, const std::string& origin) {
    if (value.is_number_unsigned() && value.get<uint64_t>() <= kTokenIdMax) {
        return value.get<uint32_t>();
    }
    return broken(origin,
                  fmt::format("the id of token \"{}\" is {}; an integer in [0, {}] is needed",
                              token,
                              shown(value),
                              kTokenIdMax));
}

Result<> read_added_tokens(const Json& list, TokenizerFile& file, const std::string& origin) {
    if (list.is_null()) return {};
    if (!list.is_array()) return broken(origin, "added_tokens is not an array");
    for (const Json& entry : list) {
        AddedToken token;
        token.content = text_of(member(entry, "content"));
        if (token.content.empty()) {
            return broken(origin, "added_tokens holds " + shown(entry) + " without content");
        }
        AFD_ASSIGN(token.id, read_id(member(entry, "id"), token.content, origin));
        token.is_special = member(entry, "special") == true;
        for (const char* key : {"lstrip", "rstrip", "single_word"}) {
            AFD_TRY(refuse_flag(entry, key, origin + ": added token \"" + token.content + "\""));
        }
        file.added_tokens.push_back(std::move(token));
    }
    return {};
}

Result<> check_normalizer(const Json& normalizer, const std::string& origin) {
    if (normalizer.is_null()) return {};
    const Json& inner = member(normalizer, "normalizers");
    if (member(normalizer, "type") == "Sequence" && inner.is_array() && inner.empty()) return {};
    return unserved(origin, "normalizer", normalizer, "null or an empty Sequence");
}

Result<> read_split(const Json& step, TokenizerFile& file, const std::string& origin) {
    if (member(step, "behavior") != "Isolated") {
        return unserved(origin, "behavior of a Split", member(step, "behavior"), "\"Isolated\"");
    }
    AFD_TRY(refuse_flag(step, "invert", origin + ": Split"));
    const Json& pattern = member(step, "pattern");
    if (!member(pattern, "Regex").is_string()) {
        return unserved(origin, "pattern of a Split", pattern, "{\"Regex\": \"...\"}");
    }
    file.split_patterns.push_back(text_of(member(pattern, "Regex")));
    return {};
}

Result<> read_byte_level(const Json& step, TokenizerFile& file, const std::string& origin) {
    AFD_TRY(refuse_flag(step, "add_prefix_space", origin + ": ByteLevel"));
    // Absent means true, as in the library.
    if (member(step, "use_regex") != false) file.split_patterns.push_back(kByteLevelPattern);
    return {};
}

Result<> read_pre_tokenizer(const Json& pre_tokenizer,
                            TokenizerFile& file,
                            const std::string& origin) {
    const bool is_sequence = member(pre_tokenizer, "type") == "Sequence";
    const Json steps =
        is_sequence ? member(pre_tokenizer, "pretokenizers") : Json::array({pre_tokenizer});
    if (!steps.is_array() || steps.empty() || member(steps.back(), "type") != "ByteLevel") {
        return unserved(
            origin, "pre_tokenizer", pre_tokenizer, "a Sequence that ends with ByteLevel");
    }
    for (const Json& step : steps) {
        const std::string type = text_of(member(step, "type"));
        if (type == "Split") {
            AFD_TRY(read_split(step, file, origin));
        } else if (type == "Digits") {
            const bool is_individual = member(step, "individual_digits") == true;
            file.split_patterns.push_back(is_individual ? R"(\p{N})" : R"(\p{N}+)");
        } else if (type == "ByteLevel" && &step == &steps.back()) {
            AFD_TRY(read_byte_level(step, file, origin));
        } else {
            return unserved(origin, "a step of pre_tokenizer", step, "Split, Digits, ByteLevel");
        }
    }
    return {};
}

Result<> read_merges(const Json& merges, TokenizerFile& file, const std::string& origin) {
    if (!merges.is_array()) return broken(origin, "model.merges is missing or not an array");
    for (const Json& merge : merges) {
        const bool is_pair = merge.is_array() && merge.size() == 2;
        if (is_pair && merge[0].is_string() && merge[1].is_string()) {
            file.merges.emplace_back(merge[0], merge[1]);
            continue;
        }
        const std::string text = text_of(merge);
        const size_t space = text.find(' ');
        // Exactly one space: tokens of the byte alphabet hold none.
        if (space == std::string::npos || space != text.rfind(' ')) {
            return broken(
                origin,
                "model.merges holds " + shown(merge) + "; \"a b\" or [\"a\", \"b\"] is needed");
        }
        file.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
    return {};
}

Result<> read_model(const Json& model, TokenizerFile& file, const std::string& origin) {
    const Json& type = member(model, "type");
    if (!model.is_object() || (!type.is_null() && type != "BPE")) {
        return unserved(origin, "model.type", type, "\"BPE\"");
    }
    AFD_TRY(refuse_flag(model, "byte_fallback", origin + ": model"));
    // Whatever would change ids is refused: a tokenizer that is nearly right gives texts that are
    // nearly right.
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
        const Json& value = member(model, key);
        if (!value.is_null() && value != "" && value != 0.0) {
            return unserved(origin, std::string("model.") + key, value, "null");
        }
    }
    file.ignore_merges = member(model, "ignore_merges") == true;
    const Json& vocab = member(model, "vocab");
    if (!vocab.is_object()) return broken(origin, "model.vocab is missing or not an object");
    for (const auto& [token, id] : vocab.items()) {
        AFD_ASSIGN(const uint32_t number, read_id(id, token, origin));
        file.vocab.emplace_back(token, number);
    }
    return read_merges(member(model, "merges"), file, origin);
}

// ByteLevel changes no ids. TemplateProcessing may put one special token before the text.
Result<> read_post_processor(const Json& processor,
                             TokenizerFile& file,
                             const std::string& origin) {
    if (processor.is_null() || member(processor, "type") == "ByteLevel") return {};
    if (member(processor, "type") == "Sequence" && member(processor, "processors").is_array()) {
        for (const Json& step : member(processor, "processors")) {
            AFD_TRY(read_post_processor(step, file, origin));
        }
        return {};
    }
    const Json& single = member(processor, "single");
    const bool is_template = member(processor, "type") == "TemplateProcessing" &&
                             single.is_array() && !single.empty() &&
                             member(single.back(), "Sequence").is_object();
    if (is_template && single.size() == 1) return {};
    if (is_template && single.size() == 2 && member(single[0], "SpecialToken").is_object()) {
        file.bos_token = text_of(member(member(single[0], "SpecialToken"), "id"));
        return {};
    }
    return unserved(origin,
                    "post_processor",
                    processor,
                    "null, ByteLevel, TemplateProcessing of at most one token before the text");
}

Result<> read_config(std::string_view text, TokenizerFile& file, const std::string& origin) {
    if (text.empty()) return {};
    AFD_ASSIGN(const Json config, parse_json(text, origin));
    const Json& add_bos = member(config, "add_bos_token");
    // tokenizer_config.json has the last word over the post-processor.
    if (add_bos == false) file.bos_token.reset();
    if (add_bos != true) return {};
    const Json& token = member(config, "bos_token");
    file.bos_token = text_of(token.is_object() ? member(token, "content") : token);
    if (file.bos_token->empty()) {
        return broken(origin, "add_bos_token is true, but bos_token is " + shown(token));
    }
    return {};
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view text,
                                           std::string_view config_text,
                                           const std::string& origin) {
    AFD_ASSIGN(const Json json, parse_json(text, origin));
    TokenizerFile file;
    AFD_TRY(read_added_tokens(member(json, "added_tokens"), file, origin));
    AFD_TRY(check_normalizer(member(json, "normalizer"), origin));
    AFD_TRY(read_pre_tokenizer(member(json, "pre_tokenizer"), file, origin));
    AFD_TRY(read_model(member(json, "model"), file, origin));
    AFD_TRY(read_post_processor(member(json, "post_processor"), file, origin));
    if (member(member(json, "decoder"), "type") != "ByteLevel") {
        return unserved(origin, "decoder", member(json, "decoder"), "ByteLevel");
    }
    AFD_TRY(read_config(config_text, file, origin + " (tokenizer_config.json)"));
    return file;
}

}  // namespace afd::model
