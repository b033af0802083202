// SPDX-License-Identifier: Apache-2.0
#pragma once

// ApiModel: the served model as HTTP clients know it.

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/message/api_error.h"
#include "model/chat/template/chat_template.h"
#include "model/checkpoint/generation_config.h"
#include "model/tokenizer/tokenizer.h"

namespace afd::daemon {

struct ApiModel {
    std::string id;       // What `model` in a request names.
    std::string root;     // The directory.
    int64_t created = 0;  // When this instance began, in seconds since 1970.
    uint32_t vocab_size = 0;
    uint32_t context_length = 0;
    uint64_t tokens_max = 0;  // Of a request, prompt and output: that, or what the KV cache holds.
    model::GenerationConfig defaults;  // Of the checkpoint's author; its end tokens are unused.
    model::Tokenizer* tokenizer = nullptr;            // Not owned. Null: prompts are token ids.
    std::shared_ptr<const model::ChatTemplate> chat;  // Null: no_chat says why.
    std::string no_chat = "the model has no chat template";
    std::vector<uint32_t> chat_end_ids;  // Tokens that end what it says in a chat.

    // Whether a request that names `name` means it.
    bool is_called(std::string_view name) const { return name == id || name == root; }
};

// What a request hears that names another.
inline ApiError no_such_model(std::string_view name, const ApiModel& model) {
    return {.status = 404,
            .code = "model_not_found",
            .param = "model",
            .message =
                fmt::format("the model '{}' is not served here; served is '{}'", name, model.id)};
}

}  // namespace afd::daemon
