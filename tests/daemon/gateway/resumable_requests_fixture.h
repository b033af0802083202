// SPDX-License-Identifier: Apache-2.0
#pragma once

// ResumableRequestsTest: a gateway with sessions in memory and scripted workers, whose clients
// break and resume.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/gateway/gateway.h"
#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/daemon/gateway/memory_session.h"
#include "tests/daemon/gateway/scripted_instance.h"
#include "tests/daemon/gateway/test_client.h"

namespace afd::daemon {

class ResumableRequestsTest : public testing::Test {
  protected:
    ResumableRequestsTest() : tokenizer_(make_byte_tokenizer()) {
        config_.attention_workers = 1;
        config_.kv_tokens = 1 << 20;
        config_.max_sequences = 8;
        config_.max_queue = 8;
        config_.connections_max = 100;
        config_.connection_requests_max = 100;
        config_.output_buffer_kib = 64;
        config_.resume_grace_ms = 60'000;
        config_.resume_buffer_kib = 1024;
        config_.detached_requests_max = 4;
        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = 1 << 20;
        model.stop_ids = {kEndOfText};
        model.tokenizer = &tokenizer_;
        gateway_ = std::make_unique<Gateway>(
            loop_, config_, model, std::vector<TraceSource>(), instance_, instance_);
        gateway_->on_attention_ready(0, 1 << 20);
    }

    MemorySession& open(const std::string& name = "one") {
        return MemorySession::open(*gateway_, name);
    }

    // What it says takes more bytes on the way, beside what it takes to keep it, than text alone.
    static client::Request wordy(uint64_t request_id) {
        client::Request request = generate(request_id, "abc", 100'000);
        request.mutable_generate()->set_resumable_ms(60'000);
        request.mutable_generate()->set_return_logprobs(true);
        request.mutable_generate()->set_return_token_ids(true);
        return request;
    }

    // Starts a resumable request of the session; the worker's id of it.
    uint64_t start(MemorySession& session,
                   uint64_t request_id,
                   uint32_t max_tokens,
                   uint32_t resumable_ms = 60'000) {
        client::Request request = generate(request_id, "abc", max_tokens);
        request.mutable_generate()->set_resumable_ms(resumable_ms);
        session.ask(request);
        const control::SupervisorMessage message = instance_.next().second;
        EXPECT_TRUE(message.has_admit());
        return message.admit().sequence_id();
    }

    static std::string resume_id(const MemorySession& session, uint64_t request_id) {
        for (const client::Response& answer : session.answers) {
            if (answer.request_id() == request_id && answer.has_accepted()) {
                return answer.accepted().resume_id();
            }
        }
        return "";
    }

    static void resume(MemorySession& session,
                       uint64_t request_id,
                       const std::string& id,
                       uint64_t received_chunks) {
        client::Request request;
        request.set_request_id(request_id);
        request.mutable_resume()->set_id(id);
        request.mutable_resume()->set_received_chunks(received_chunks);
        session.ask(request);
    }

    static uint32_t error_code(const MemorySession& session, uint64_t request_id) {
        const client::Response* last = session.last(request_id);
        return last == nullptr ? 0 : last->error().code();
    }
    static constexpr uint32_t code(Code code) { return static_cast<uint32_t>(code); }

    void say(uint64_t id, const std::string& text) {
        for (const char c : text) {
            gateway_->on_events(0, token_event(id, static_cast<uint8_t>(c)));
        }
    }
    void end(uint64_t id, Code code = Code::kOk) {
        gateway_->on_events(0, end_event(id, code, ""));
    }

    Config config_;
    model::Tokenizer tokenizer_;
    EventLoop loop_;
    ScriptedInstance instance_;
    std::unique_ptr<Gateway> gateway_;
};

}  // namespace afd::daemon
