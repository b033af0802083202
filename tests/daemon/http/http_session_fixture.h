// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpSessionTest: HTTP connections over the real gateway; the test says what the worker answers.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "daemon/gateway/gateway.h"
#include "daemon/http/http_session.h"
#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/daemon/gateway/scripted_instance.h"
#include "tests/daemon/http/http_client.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {

inline constexpr const char* kCompletions = "/v1/completions";

class HttpSessionTest : public testing::Test {
  protected:
    HttpSessionTest() : tokenizer_(make_byte_tokenizer()) {
        config_.instance = "test";
        config_.attention_workers = 1;
        config_.kv_tokens = 1 << 20;
        config_.max_sequences = 8;
        config_.max_queue = 4;
        config_.connections_max = 4;
        config_.connection_requests_max = 100;
        config_.idle_timeout_ms = 3'600'000;
        config_.output_buffer_kib = 64;
        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = 4096;
        model.stop_ids = {kEndOfText};
        model.tokenizer = &tokenizer_;
        gateway_ = std::make_unique<Gateway>(
            loop_, config_, model, std::vector<TraceSource>(), instance_, instance_);
        gateway_->on_attention_ready(0, 1 << 20);
        instance_.state = "ready";
        services_ = make_services({.bytes_max = size_t{1} << 20, .timeout_ms = 60'000});
    }

    std::shared_ptr<HttpServices> make_services(const InputBudget::Limits& limits) {
        auto services = std::make_shared<HttpServices>(loop_);
        services->model.id = "tiny";
        services->model.root = "/models/tiny";
        services->model.vocab_size = kByteVocabulary;
        services->model.context_length = 4096;
        services->model.tokens_max = 3000;
        services->model.tokenizer = &tokenizer_;
        services->body_bytes_max = 200'000;
        services->budget = std::make_shared<InputBudget>(limits);
        return services;
    }

    std::unique_ptr<HttpClient> connect(int send_buffer = 0) {
        return std::make_unique<HttpClient>(loop_, *gateway_, services_, send_buffer);
    }

    using Answer = HttpClient::Answer;
    Answer next(HttpClient& client, bool to_head = false) {
        std::optional<Answer> answer;
        EXPECT_TRUE(run_until(loop_,
                              [&] {
                                  answer = client.next(to_head);
                                  return answer.has_value();
                              }))
            << "no answer, only: " << client.in;
        return answer.value_or(Answer());
    }
    void expect_closed(HttpClient& client) {
        EXPECT_TRUE(run_until(loop_, [&] {
            client.receive();
            return client.is_closed;
        })) << "the connection goes on";
    }

    // The worker's id of the request that it is told next.
    uint64_t next_admitted() {
        EXPECT_TRUE(run_until(loop_, [&] { return instance_.has_next(); }));
        const control::SupervisorMessage message = instance_.next().second;
        EXPECT_TRUE(message.has_admit());
        return message.admit().sequence_id();
    }
    void say(uint64_t id, const std::string& text) {
        for (const char c : text) {
            gateway_->on_events(0, token_event(id, static_cast<uint8_t>(c)));
        }
    }
    void end(uint64_t id, Code code = Code::kOk, const std::string& message = "") {
        gateway_->on_events(0, end_event(id, code, message));
    }

    Config config_;
    model::Tokenizer tokenizer_;
    EventLoop loop_;
    ScriptedInstance instance_;
    std::unique_ptr<Gateway> gateway_;
    std::shared_ptr<HttpServices> services_;
};

}  // namespace afd::daemon
