// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/call/prompt_reader.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/http/call/field_reader.h"

namespace afd::daemon {

namespace {

constexpr const char* kForms = "it must be a string, an array of token ids, or an array of either";

bool is_token_id(const nlohmann::json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= UINT32_MAX;
}

// One prompt: a text or token ids. `name`: of the place, for errors.
ApiResult<client::Generate> read_prompt(const nlohmann::json& value, const std::string& name) {
    client::Generate prompt;
    if (value.is_string()) {
        prompt.set_text(value.get_ref<const std::string&>());
        return prompt;
    }
    if (!value.is_array()) {
        return bad_field("prompt", fmt::format("{} is {}; {}", name, type_of(value), kForms));
    }
    ApiResult<client::TokenIds> ids = read_token_ids(value, name);
    if (auto* error = std::get_if<ApiError>(&ids)) {
        error->param = "prompt";
        return std::move(*error);
    }
    *prompt.mutable_token_ids() = std::move(std::get<client::TokenIds>(ids));
    return prompt;
}

}  // namespace

ApiResult<std::vector<client::Generate>> read_prompts(const nlohmann::json& prompt,
                                                      size_t prompts_max) {
    std::vector<client::Generate> prompts;
    if (prompt.is_array() && prompt.empty()) {
        return bad_field("prompt", "prompt is an empty array; it must have at least one token");
    }
    const bool is_list = prompt.is_array() && !prompt.front().is_number();
    // Before there is a message of each.
    if (is_list && prompt.size() > prompts_max) {
        return bad_field("prompt",
                         fmt::format("prompt has {} prompts; at most {} are served together",
                                     prompt.size(),
                                     prompts_max));
    }
    for (size_t i = 0; i < (is_list ? prompt.size() : 1); ++i) {
        ApiResult<client::Generate> one = is_list
                                              ? read_prompt(prompt[i], fmt::format("prompt[{}]", i))
                                              : read_prompt(prompt, "prompt");
        if (auto* error = std::get_if<ApiError>(&one)) return std::move(*error);
        prompts.push_back(std::move(std::get<client::Generate>(one)));
    }
    return prompts;
}

ApiResult<client::TokenIds> read_token_ids(const nlohmann::json& ids, const std::string& name) {
    if (!ids.is_array()) {
        return bad_field(
            name, fmt::format("{} is {}; it must be an array of token ids", name, type_of(ids)));
    }
    client::TokenIds read;
    read.mutable_ids()->Reserve(static_cast<int>(ids.size()));
    for (size_t i = 0; i < ids.size(); ++i) {
        if (!is_token_id(ids[i])) {
            return bad_field(
                name,
                fmt::format("{}[{}] is {}; it must be a token id, an integer from 0 on",
                            name,
                            i,
                            ids[i].is_number_integer() ? ids[i].dump() : type_of(ids[i])));
        }
        read.add_ids(ids[i].get<uint32_t>());
    }
    return read;
}

ApiResult<std::vector<uint32_t>> encode_prompt(const std::string& text,
                                               bool adds_special,
                                               const ApiModel& model) {
    if (model.tokenizer == nullptr) {
        return bad_field("prompt", "this model has no tokenizer: send the prompt as token ids");
    }
    // Before the text is looked at in any other way: encoding costs some hundred times as much.
    const uint64_t tokens_min = model.tokenizer->tokens_min(text);
    if (tokens_min > model.context_length) {
        return ApiError{
            .status = 400,
            .code = "context_length_exceeded",
            .param = "prompt",
            .message = fmt::format("the prompt has {} bytes, which are at least {} tokens: at most "
                                   "{} fit, the context length of the model; send a shorter prompt",
                                   text.size(),
                                   tokens_min,
                                   model.context_length)};
    }
    Result<std::vector<uint32_t>> encoded = model.tokenizer->encode(text);
    if (!encoded.ok()) return bad_field("prompt", encoded.error().message);
    std::vector<uint32_t> ids = std::move(encoded).value();
    if (adds_special) {
        const auto start = model.tokenizer->prompt_start();
        const auto end = model.tokenizer->prompt_end();
        ids.insert(ids.begin(), start.begin(), start.end());
        ids.insert(ids.end(), end.begin(), end.end());
    }
    return ids;
}

std::string text_of_prompt(const client::Generate& prompt,
                           bool keeps_special,
                           const ApiModel& model) {
    if (prompt.has_text()) return prompt.text();
    if (model.tokenizer == nullptr) return "";
    const auto& ids = prompt.token_ids().ids();
    return model.tokenizer->decode({ids.data(), static_cast<size_t>(ids.size())}, keeps_special);
}

}  // namespace afd::daemon
