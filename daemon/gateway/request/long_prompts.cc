// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/request/long_prompts.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace afd::daemon {

namespace {

ServedModel with_tokenizer_of_thread(ServedModel model) {
    if (model.texts != nullptr) model.tokenizer = &model.texts->tokenizer;
    return model;
}

const std::string* text_of(const client::Request& request) {
    if (request.has_generate() && request.generate().has_text()) return &request.generate().text();
    return request.has_tokenize() ? &request.tokenize().text() : nullptr;
}

}  // namespace

// Shared with the work, which goes on when the request is forgotten.
struct LongPrompts::Reading {
    struct Texts {
        client::Request request;
        Result<std::vector<uint32_t>> ids = std::vector<uint32_t>();
    };

    ClientSession* client = nullptr;
    std::shared_ptr<Texts> texts;
    bool is_cancelled = false;
    std::unique_ptr<BackgroundThread::Job> job = nullptr;
};

LongPrompts::LongPrompts(const ServedModel& model, Next next, Fail fail)
    : model_(with_tokenizer_of_thread(model)), next_(std::move(next)), fail_(std::move(fail)) {}

LongPrompts::~LongPrompts() = default;

bool LongPrompts::is_long(const client::Request& request) const {
    const std::string* text = text_of(request);
    return model_.texts != nullptr && text != nullptr && text->size() > TextThread::kShortBytesMax;
}

void LongPrompts::read(ClientSession& client,
                       const client::Request& request,
                       const TokenLimit& limit) {
    auto texts = std::make_shared<Reading::Texts>(Reading::Texts{request});
    readings_.push_back({.client = &client, .texts = texts});
    const Place place = std::prev(readings_.end());
    client.hold_input(text_of(request)->size());
    // The model outlives the thread's work: afdd ends the thread after the gateway.
    place->job = model_.texts->thread.run(
        [texts, limit, model = model_] {
            const client::Request& asked = texts->request;
            const bool as_prompt = asked.has_generate() || asked.tokenize().add_special_tokens();
            texts->ids = tokenize(*text_of(asked), as_prompt, model, limit);
        },
        [this, place] { on_read(place); });
}

void LongPrompts::on_read(Place place) {
    const Reading reading = std::move(*place);
    readings_.erase(place);
    ClientSession& client = *reading.client;
    client::Request& request = reading.texts->request;
    const Result<std::vector<uint32_t>>& ids = reading.texts->ids;
    client.release_input();
    if (reading.is_cancelled) {
        fail_(client, request, {Code::kCancelled, "cancelled before it was accepted"});
    } else if (!ids.ok()) {
        fail_(client, request, ids.error());
    } else {
        next_(client, request, ids.value());
    }
}

void LongPrompts::cancel(const ClientSession& client, uint64_t request_id) {
    for (Reading& reading : readings_) {
        if (reading.client == &client && reading.texts->request.request_id() == request_id) {
            reading.is_cancelled = true;
        }
    }
}

void LongPrompts::forget(const ClientSession& client) {
    readings_.remove_if([&](const Reading& reading) { return reading.client == &client; });
}

bool LongPrompts::is_for(const ClientSession& client) const {
    return std::ranges::any_of(readings_,
                               [&](const Reading& reading) { return reading.client == &client; });
}

}  // namespace afd::daemon
