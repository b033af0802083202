// SPDX-License-Identifier: Apache-2.0
#pragma once

// GenerationAnswerTest: an answer, what a gateway says to it, made up, and the events that a client
// reads, parsed by nlohmann's library, which does not write them.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "daemon/http/answer/generation_answer.h"
#include "proto/status.h"
#include "tests/daemon/gateway/byte_tokenizer.h"

namespace afd::daemon {

using nlohmann::json;

inline client::Response accepted(const std::vector<uint32_t>& prompt_ids) {
    client::Response response;
    response.mutable_accepted()->set_num_prompt_tokens(static_cast<uint32_t>(prompt_ids.size()));
    for (const uint32_t id : prompt_ids) response.mutable_accepted()->add_prompt_ids(id);
    return response;
}

inline client::Response token(const std::string& text, uint32_t id, float logprob) {
    client::Response response;
    client::Chunk& chunk = *response.mutable_chunk();
    chunk.set_text(text);
    chunk.set_num_tokens(1);
    chunk.add_token_ids(id);
    chunk.add_logprobs(logprob);
    return response;
}

inline void add_top(const std::vector<std::pair<uint32_t, float>>& tokens,
                    client::TopLogprobs& top) {
    for (const auto& [id, logprob] : tokens) {
        top.add_token_ids(id);
        top.add_logprobs(logprob);
    }
}

inline client::Response finished(client::FinishReason reason) {
    client::Response response;
    response.mutable_finished()->set_reason(reason);
    return response;
}

inline client::Response failed(Code code, const std::string& message) {
    client::Response response;
    response.mutable_error()->set_code(static_cast<uint32_t>(code));
    response.mutable_error()->set_message(message);
    return response;
}

// The data of each event; its JSON, except for the end mark.
inline std::vector<json> parse_events(const std::string& events) {
    std::vector<json> parsed;
    for (size_t at = 0; at < events.size();) {
        const size_t end = events.find("\n\n", at);
        EXPECT_NE(end, std::string::npos) << "the last event has no end";
        const std::string line = events.substr(at, end - at);
        EXPECT_TRUE(line.starts_with("data: ")) << line;
        EXPECT_EQ(line.find('\n'), std::string::npos) << line;
        const std::string data = line.substr(6);
        parsed.push_back(data == "[DONE]" ? json("[DONE]") : json::parse(data));
        at = end + 2;
    }
    return parsed;
}

class GenerationAnswerTest : public testing::Test {
  protected:
    GenerationAnswerTest() : tokenizer_(make_byte_tokenizer()) {
        model_.id = "tiny";
        model_.tokenizer = &tokenizer_;
    }

    GenerationAnswer answer(GenerationCall call, size_t num_prompts = 1) const {
        call.prompts.resize(num_prompts);
        return {std::move(call),
                model_,
                {.id = "cmpl-1",
                 .created = 1763715000,
                 .model = "tiny",
                 .system_fingerprint = "afd-1.2.3"}};
    }

    // The events of one Response.
    static std::vector<json> say(GenerationAnswer& answer,
                                 const client::Response& response,
                                 size_t choice = 0) {
        std::string events;
        answer.on_response(choice, response, events);
        return parse_events(events);
    }

    static std::vector<json> last(const GenerationAnswer& answer) {
        std::string events;
        answer.append_last_events(events);
        return parse_events(events);
    }

    model::Tokenizer tokenizer_;
    ApiModel model_;
};

}  // namespace afd::daemon
