// SPDX-License-Identifier: Apache-2.0
#pragma once

// ApiModel: the served model as HTTP clients know it.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
};

}  // namespace afd::daemon
