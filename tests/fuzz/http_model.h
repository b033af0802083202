// SPDX-License-Identifier: Apache-2.0
#pragma once

// The model that fuzzers of HTTP serve: tokens are bytes (byte_tokenizer.h), chats have a template
// with thoughts and tools. And what must hold of anything that goes to a client.

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "daemon/http/call/api_model.h"
#include "model/chat/template/chatml_template.h"
#include "proto/check.h"
#include "tests/fuzz/gateway_around.h"

namespace afd::fuzz {

inline daemon::ApiModel http_model() {
    daemon::ApiModel model;
    model.id = "tiny";
    model.root = "/models/tiny";
    model.vocab_size = daemon::kByteVocabulary;
    model.context_length = 512;
    model.tokenizer = &GatewayAround::tokenizer();
    model.chat =
        std::make_shared<model::ChatmlTemplate>("", model::ChatmlThinking::kUnlessAsked, true);
    model.chat_end_ids = {daemon::kEndOfText};
    return model;
}

// By nlohmann's parser, which also sees to UTF-8, and does not write what it reads here.
inline nlohmann::json must_be_json(std::string_view text) {
    nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    AFD_ASSERT(
        !json.is_discarded(), "no JSON in UTF-8: %.*s", static_cast<int>(text.size()), text.data());
    return json;
}

// Server-sent events, whole: each is one line of data, JSON or the mark of the end, which comes
// last and once; comments may be between them. Returns how many have JSON.
inline size_t must_be_events(std::string_view text) {
    size_t num_events = 0;
    bool has_ended = false;
    while (!text.empty()) {
        AFD_ASSERT(!has_ended, "something is behind the end: %.*s", int(text.size()), text.data());
        const size_t end = text.find("\n\n");
        AFD_ASSERT(end != std::string_view::npos, "no end: %.*s", int(text.size()), text.data());
        const std::string_view event = text.substr(0, end);
        text.remove_prefix(end + 2);
        if (event.starts_with(": ")) continue;
        AFD_ASSERT(event.starts_with("data: ") && event.find_first_of("\r\n") == event.npos,
                   "no line of data: %.*s",
                   static_cast<int>(event.size()),
                   event.data());
        has_ended = event == "data: [DONE]";
        if (has_ended) continue;
        must_be_json(event.substr(6));
        ++num_events;
    }
    AFD_ASSERT(has_ended, "%zu events without their end", num_events);
    return num_events;
}

}  // namespace afd::fuzz
