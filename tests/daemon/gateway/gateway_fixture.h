// SPDX-License-Identifier: Apache-2.0
#pragma once

// GatewayTest: the gateway over scripted attention workers.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/gateway/gateway.h"
#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/daemon/gateway/scripted_instance.h"
#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {

// The test sees what the workers are told, and says what they answer.
class GatewayTest : public testing::Test {
  protected:
    GatewayTest() : tokenizer_(make_byte_tokenizer()) {
        config_.instance = "test";
        config_.attention_workers = 2;
        config_.kv_tokens = 1024;
        config_.max_sequences = 8;
        config_.max_queue = 2;
        config_.connections_max = 100;
        config_.connection_requests_max = 8;
        config_.output_buffer_kib = 64;
        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = 4096;
        model.stop_ids = {kEndOfText};
        model.tokenizer = &tokenizer_;
        gateway_ = std::make_unique<Gateway>(
            loop_, config_, model, std::vector<TraceSource>(), instance_, instance_);
    }

    void expect_answer(TestClient& client, uint64_t request_id, client::Response::BodyCase body) {
        ASSERT_TRUE(run_until(loop_,
                              [&] {
                                  client.receive();
                                  const auto* last = client.last(request_id);
                                  return last != nullptr && last->body_case() == body;
                              }))
            << "request " << request_id << " never got an answer of kind " << body;
    }

    // Waits for the next message to a worker and returns it.
    ScriptedInstance::Sent next_sent() {
        EXPECT_TRUE(run_until(loop_, [&] { return instance_.has_next(); }));
        return instance_.next();
    }

    void say_token(uint32_t session, uint64_t id, uint32_t token) {
        gateway_->on_events(session, token_event(id, token));
    }

    void say_text(uint32_t session, uint64_t id, const std::string& text) {
        for (const char c : text) say_token(session, id, static_cast<uint8_t>(c));
    }

    void say_end(uint32_t session,
                 uint64_t id,
                 Code code = Code::kOk,
                 const std::string& message = "") {
        gateway_->on_events(session, end_event(id, code, message));
    }

    Config config_;
    model::Tokenizer tokenizer_;
    EventLoop loop_;
    ScriptedInstance instance_;
    std::unique_ptr<Gateway> gateway_;
};

}  // namespace afd::daemon
