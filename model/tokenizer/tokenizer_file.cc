// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/tokenizer_file.h"

#include <nlohmann/json.hpp>

#include "model/json/json_document.h"
#include "model/tokenizer/tokenizer_keys.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using nlohmann::json;

Result<uint32_t> read_id(const json& value, const std::string& token, const std::string& origin) {
    if (value.is_number_unsigned() && value.get<uint64_t>() <= kTokenIdMax) {
        return value.get<uint32_t>();
    }
    return broken_file(origin,
                       fmt::format("the id of token \"{}\" is {}; an integer in [0, {}] is needed",
                                   token,
                                   json_shown(value),
                                   kTokenIdMax));
}

Result<> read_added_tokens(const json& list, TokenizerFile& file, const std::string& origin) {
    if (list.is_null()) return {};
    if (!list.is_array()) return broken_file(origin, "added_tokens is not an array");
    for (const json& entry : list) {
        AddedToken token;
        token.content = json_string(json_member(entry, "content"));
        if (token.content.empty()) {
            return broken_file(origin,
                               "added_tokens holds " + json_shown(entry) + " without content");
        }
        AFD_ASSIGN(token.id, read_id(json_member(entry, "id"), token.content, origin));
        const std::string place = origin + ": added token \"" + token.content + "\"";
        AFD_ASSIGN(token.is_special, json_flag(entry, "special", false, place));
        AFD_ASSIGN(token.is_normalized, json_flag(entry, "normalized", !token.is_special, place));
        AFD_ASSIGN(token.options.strips_left, json_flag(entry, "lstrip", false, place));
        AFD_ASSIGN(token.options.strips_right, json_flag(entry, "rstrip", false, place));
        AFD_ASSIGN(token.options.is_whole_word, json_flag(entry, "single_word", false, place));
        file.added_tokens.push_back(std::move(token));
    }
    return {};
}

Result<> read_merges(const json& merges, TokenizerFile& file, const std::string& origin) {
    if (!merges.is_array()) return broken_file(origin, "model.merges is missing or not an array");
    for (const json& merge : merges) {
        const bool is_pair = merge.is_array() && merge.size() == 2;
        if (is_pair && merge[0].is_string() && merge[1].is_string()) {
            file.merges.emplace_back(merge[0], merge[1]);
            continue;
        }
        const std::string text = json_string(merge);
        const size_t space = text.find(' ');
        // Exactly one space: tokens that hold one need the other form.
        if (space == std::string::npos || space != text.rfind(' ')) {
            return broken_file(origin,
                               "model.merges holds " + json_shown(merge) +
                                   "; \"a b\" or [\"a\", \"b\"] is needed");
        }
        file.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
    return {};
}

Result<> read_model(const json& model, TokenizerFile& file, const std::string& origin) {
    const json& type = json_member(model, "type");
    if (!model.is_object() || (!type.is_null() && type != "BPE")) {
        return unserved_key(origin, "model.type", type, "\"BPE\"");
    }
    // Whatever would change ids is refused: a tokenizer that is nearly right gives texts that are
    // nearly right.
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
        const json& value = json_member(model, key);
        if (!value.is_null() && value != "" && value != 0.0) {
            return unserved_key(origin, std::string("model.") + key, value, "null");
        }
    }
    const std::string place = origin + ": model";
    AFD_ASSIGN(file.has_byte_fallback, json_flag(model, "byte_fallback", false, place));
    AFD_ASSIGN(file.ignore_merges, json_flag(model, "ignore_merges", false, place));
    const json& vocab = json_member(model, "vocab");
    if (!vocab.is_object()) return broken_file(origin, "model.vocab is missing or not an object");
    for (const auto& [token, id] : vocab.items()) {
        AFD_ASSIGN(const uint32_t number, read_id(id, token, origin));
        file.vocab.emplace_back(token, number);
    }
    return read_merges(json_member(model, "merges"), file, origin);
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view text,
                                           std::string_view config_text,
                                           const std::string& origin) {
    AFD_ASSIGN(const json file_json, parse_json(text, origin));
    TokenizerFile file;
    AFD_TRY(read_added_tokens(json_member(file_json, "added_tokens"), file, origin));
    AFD_ASSIGN(file.normalizer, Normalizer::parse(json_member(file_json, "normalizer"), origin));
    AFD_ASSIGN(file.pre_tokenizer,
               PreTokenizer::parse(json_member(file_json, "pre_tokenizer"), origin));
    AFD_TRY(read_model(json_member(file_json, "model"), file, origin));
    AFD_ASSIGN(file.prompt,
               PromptTemplate::parse(json_member(file_json, "post_processor"), origin));
    AFD_ASSIGN(file.decoder, TokenDecoder::parse(json_member(file_json, "decoder"), origin));
    if (file.decoder.is_byte_level() != file.pre_tokenizer.is_byte_level()) {
        return unserved_key(origin,
                            "decoder",
                            json_member(file_json, "decoder"),
                            "ByteLevel if pre_tokenizer has it, and only then");
    }
    AFD_TRY(file.prompt.apply_config(config_text, origin + " (tokenizer_config.json)"));
    return file;
}

}  // namespace afd::model
