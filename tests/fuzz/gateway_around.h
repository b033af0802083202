// SPDX-License-Identifier: Apache-2.0
#pragma once

// GatewayAround: a gateway for one input, between a client in memory and scripted workers.

#include <memory>
#include <vector>

#include "daemon/gateway/gateway.h"
#include "daemon/program/logging.h"
#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/daemon/gateway/memory_session.h"
#include "tests/daemon/gateway/scripted_instance.h"

namespace afd::fuzz {

class GatewayAround {
  public:
    GatewayAround() {
        config_.instance = "fuzz";
        config_.attention_workers = 2;
        config_.kv_tokens = 1024;
        config_.max_sequences = 4;
        config_.max_queue = 8;
        config_.connections_max = 10;
        config_.connection_requests_max = 8;
        config_.output_buffer_kib = 64;
        config_.round_timeout_ms = 1000;
        daemon::ServedModel model;
        model.vocab_size = daemon::kByteVocabulary;
        model.context_length = 512;
        model.stop_ids = {daemon::kEndOfText};
        model.tokenizer = &tokenizer();
        gateway_ = std::make_unique<daemon::Gateway>(
            loop_, config_, model, std::vector<daemon::TraceSource>(), instance_, instance_);
        gateway_->on_attention_ready(0, config_.kv_tokens);
        client_ = &daemon::MemorySession::open(*gateway_, "input");
    }
    ~GatewayAround() {
        if (client_->is_open()) client_->close();
    }

    daemon::EventLoop& loop() { return loop_; }
    daemon::Gateway& gateway() { return *gateway_; }
    daemon::MemorySession& client() { return *client_; }
    daemon::ScriptedInstance& instance() { return instance_; }

    static model::Tokenizer& tokenizer() {
        static model::Tokenizer made = [] {
            // A worker that says what it must not is logged for each input.
            daemon::set_up_logging("fuzz", "off", "text");
            return daemon::make_byte_tokenizer();
        }();
        return made;
    }

  private:
    daemon::Config config_;
    daemon::EventLoop loop_;
    daemon::ScriptedInstance instance_;
    std::unique_ptr<daemon::Gateway> gateway_;
    daemon::MemorySession* client_ = nullptr;
};

}  // namespace afd::fuzz
