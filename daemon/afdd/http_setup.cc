// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/http_setup.h"

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <utility>

#include "daemon/gateway/request/prompt.h"
#include "daemon/program/logging.h"
#include "model/attention/attention_config.h"
#include "model/chat/template/chat_template.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

// A model without a template serves completions, and says why there are no chats to who asks.
Result<> choose_chat(const std::string& directory, ApiModel& model) {
    AFD_ASSIGN(const model::ChatFiles files, model::ChatFiles::read(directory));
    AFD_ASSIGN(std::unique_ptr<const model::ChatTemplate> chat,
               model::choose_chat_template(files, *model.tokenizer));
    // The checkpoint's own end tokens may not have it.
    for (const std::string_view token : {chat->end_token(), chat->call_end_token()}) {
        if (const auto end = model.tokenizer->added_token(token)) {
            model.chat_end_ids.push_back(*end);
        }
    }
    log::info("chats are rendered as {}", chat->name());
    model.chat = std::move(chat);
    return {};
}

ApiModel describe_model(const Config& config, InstanceSetup& setup) {
    ApiModel model;
    model.root = setup.model().directory();
    model.id = served_model_name(config, model.root);
    model.created = std::time(nullptr);
    model.vocab_size = setup.model().config().vocab_size;
    const model::ModelConfig& checkpoint = setup.model().config();
    model.context_length = checkpoint.context_length;
    model.tokens_max =
        TokenLimit(
            model.context_length, checkpoint.attention->window(), whole_kv_tokens(config.kv_tokens))
            .tokens;
    model.defaults = setup.model().generation();
    model.tokenizer = &setup.tokenizer();
    if (const Result<> chosen = choose_chat(model.root, model); !chosen.ok()) {
        model.no_chat = chosen.error().message;
    }
    return model;
}

Result<ApiKeys> keys_for(const Config& config, const ListenAddress& address) {
    AFD_ASSIGN(ApiKeys keys, load_api_keys(config));
    if (keys.empty() && !address.is_loopback() && !config.http_open) {
        return invalid_argument(
            "http = {} lets other machines in, and there is no API key: name a file of keys in "
            "http_keys, or set http_open",
            with(config.http));
    }
    return keys;
}

}  // namespace

std::string served_model_name(const Config& config, const std::string& directory) {
    if (!config.http_model.empty()) return config.http_model;
    const std::filesystem::path path(directory);
    return (path.has_filename() ? path : path.parent_path()).filename().string();
}

Result<ApiKeys> load_api_keys(const Config& config) {
    const char* key = std::getenv("AFD_API_KEY");
    return ApiKeys::load(config.http_keys, key == nullptr ? "" : key);
}

Result<> check_http(const Config& config) {
    AFD_ASSIGN(const ListenAddress address, parse_listen_address(config.http));
    AFD_TRY(keys_for(config, address));
    return {};
}

Result<std::shared_ptr<HttpServices>> make_http_services(EventLoop& loop,
                                                         const Config& config,
                                                         const ListenAddress& address,
                                                         InstanceSetup& setup,
                                                         TextThread& texts,
                                                         std::shared_ptr<InputBudget> budget) {
    auto services = std::make_shared<HttpServices>(loop);
    AFD_ASSIGN(services->keys, keys_for(config, address));
    AFD_ASSIGN(services->origins, OriginList::parse(config.http_origins));
    services->model = describe_model(config, setup);
    services->texts = &texts;
    ApiModel model_of_thread = services->model;
    model_of_thread.tokenizer = &texts.tokenizer;
    services->model_of_thread = std::make_shared<const ApiModel>(std::move(model_of_thread));
    services->body_bytes_max = config.http_body_kib * 1024;
    services->budget = std::move(budget);
    return services;
}

}  // namespace afd::daemon
