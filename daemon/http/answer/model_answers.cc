// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/model_answers.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "daemon/http/call/chat_reader.h"
#include "daemon/http/call/field_reader.h"
#include "daemon/http/call/prompt_reader.h"
#include "daemon/http/message/ignored_params.h"
#include "model/json/percent_encoding.h"

namespace afd::daemon {

namespace {

nlohmann::json describe_model(const ApiModel& model) {
    return {{"id", model.id},
            {"object", "model"},
            {"created", model.created},
            {"owned_by", "afd"},
            {"root", model.root},
            {"parent", nullptr},
            {"max_model_len", model.tokens_max}};
}

// A model's name may be any bytes, and dump() throws at what is not UTF-8.
HttpResponse written(const nlohmann::json& json) {
    return HttpResponse::json(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// What both endpoints begin with.
std::optional<ApiError> check_common(FieldReader& fields, const ApiModel& model) {
    const auto name = fields.text("model");
    if (fields.error()) return fields.error();
    if (name && !model.is_called(*name)) return no_such_model(*name, model);
    if (model.tokenizer != nullptr) return std::nullopt;
    return ApiError{.status = 400, .message = "this model has no tokenizer"};
}

ApiResult<std::vector<uint32_t>> tokenize_text(FieldReader& fields, const ApiModel& model) {
    const auto prompt = fields.text("prompt");
    const bool adds_special = fields.boolean("add_special_tokens").value_or(true);
    if (!prompt) fields.fail(bad_field("prompt", "prompt is missing: the text to tokenize"));
    if (fields.error()) return *fields.error();
    return encode_prompt(*prompt, adds_special, model);
}

ApiResult<std::vector<uint32_t>> tokenize_chat(FieldReader& fields,
                                               std::string_view body,
                                               const ApiModel& model) {
    const model::Conversation conversation = read_conversation(fields, body);
    if (fields.error()) return *fields.error();
    ApiResult<client::TokenIds> ids = render_prompt(conversation, model);
    if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
    const auto& read = std::get<client::TokenIds>(ids).ids();
    return std::vector<uint32_t>(read.begin(), read.end());
}

ApiResult<nlohmann::json> tokenize(FieldReader& fields,
                                   std::string_view body,
                                   const ApiModel& model) {
    ApiResult<std::vector<uint32_t>> ids = fields.any("messages") == nullptr
                                               ? tokenize_text(fields, model)
                                               : tokenize_chat(fields, body, model);
    if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
    const auto& tokens = std::get<std::vector<uint32_t>>(ids);
    return nlohmann::json{
        {"count", tokens.size()}, {"max_model_len", model.tokens_max}, {"tokens", tokens}};
}

ApiResult<nlohmann::json> detokenize(FieldReader& fields, const ApiModel& model) {
    const bool keeps_special = !fields.boolean("skip_special_tokens").value_or(false);
    if (fields.error()) return *fields.error();
    const nlohmann::json* tokens = fields.any("tokens");
    if (tokens == nullptr) return bad_field("tokens", "tokens is missing: an array of token ids");
    ApiResult<client::TokenIds> read = read_token_ids(*tokens, "tokens");
    if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
    const auto& ids = std::get<client::TokenIds>(read).ids();
    if (static_cast<uint64_t>(ids.size()) > model.context_length) {
        return bad_field("tokens",
                         fmt::format("tokens has {} ids: at most {} are taken, the context length "
                                     "of the model",
                                     ids.size(),
                                     model.context_length));
    }
    for (int i = 0; i < ids.size(); ++i) {
        if (ids[i] < model.vocab_size) continue;
        return bad_field("tokens",
                         fmt::format("tokens[{}] = {}: must be below the vocabulary size {}",
                                     i,
                                     ids[i],
                                     model.vocab_size));
    }
    return nlohmann::json{
        {"prompt",
         model.tokenizer->decode({ids.data(), static_cast<size_t>(ids.size())}, keeps_special)}};
}

template <typename Answer>
HttpResponse answer_body(std::string_view body, const ApiModel& model, Answer answer) {
    const ApiResult<nlohmann::json> json = parse_body(body);
    if (const auto* error = std::get_if<ApiError>(&json)) return HttpResponse::of(*error);
    FieldReader fields(std::get<nlohmann::json>(json));
    if (const auto error = check_common(fields, model)) return HttpResponse::of(*error);
    const ApiResult<nlohmann::json> result = answer(fields);
    if (const auto* error = std::get_if<ApiError>(&result)) return HttpResponse::of(*error);
    HttpResponse response = written(std::get<nlohmann::json>(result));
    add_ignored_params(fields.unknown(), response.headers);
    return response;
}

}  // namespace

HttpResponse answer_models(const ApiModel& model) {
    const nlohmann::json list = {{"object", "list"},
                                 {"data", nlohmann::json::array({describe_model(model)})}};
    return written(list);
}

HttpResponse answer_model(const ApiModel& model, std::string_view path) {
    const std::string name = model::percent_decoded(path);
    if (!model.is_called(name)) return HttpResponse::of(no_such_model(name, model));
    return written(describe_model(model));
}

HttpResponse answer_tokenize(std::string_view body, const ApiModel& model) {
    return answer_body(
        body, model, [&](FieldReader& fields) { return tokenize(fields, body, model); });
}

HttpResponse answer_detokenize(std::string_view body, const ApiModel& model) {
    return answer_body(body, model, [&](FieldReader& fields) { return detokenize(fields, model); });
}

}  // namespace afd::daemon
