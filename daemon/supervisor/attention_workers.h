// SPDX-License-Identifier: Apache-2.0
#pragma once

// The attention workers as the gateway knows them: whom it sends requests to, and what it hears.
// A session is the number of an attention worker, below the number of them; its process may come
// and go. A resize changes that number, and all of them (Gateway::go_on()).

#include <cstdint>

#include "daemon/supervisor/worker_end.h"
#include "proto/control.pb.h"

namespace afd::daemon {

// Implemented by the Supervisor.
class AttentionWorkers {
  public:
    virtual ~AttentionWorkers() = default;
    // Admit or CancelSequence. A worker that dies meanwhile loses it; on_attention_gone() follows.
    virtual void send(uint32_t session, const control::SupervisorMessage& message) = 0;
    // What they have died of when they were ready is no more: that they did says nothing about
    // whether they can serve.
    virtual void excuse_deaths() = 0;
};

// Implemented by the Gateway.
class AttentionListener {
  public:
    virtual ~AttentionListener() = default;
    virtual void on_attention_ready(uint32_t session, uint64_t kv_tokens) = 0;
    // The process is gone; all its events were delivered before.
    virtual void on_attention_gone(uint32_t session, const WorkerEnd& end) = 0;
    virtual void on_events(uint32_t session, const control::Events& events) = 0;
    // It has been waiting for a peer for wait_report_ms, or that is over (R7).
    virtual void on_attention_wait(uint32_t session, bool is_waiting) = 0;
    // Sequences that the attention worker holds, as the listener counts them.
    virtual uint32_t num_sequences(uint32_t session) const = 0;
};

}  // namespace afd::daemon
