// SPDX-License-Identifier: Apache-2.0
#pragma once

// Gateway: serves clients (client.proto) with the attention workers.
//
// It validates, queues, admits (admission_queue.h), streams (request.h) and replays: when an
// attention worker is gone, its requests run again elsewhere behind what was already sent, and
// the client sees a pause. A request that cannot complete ends with an explicit error.
// All on afdd's loop; it reaches workers only through `send`, and learns of them as a
// SupervisorClient.

#include <functional>
#include <memory>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/gateway/admission_queue.h"
#include "daemon/gateway/client_answers.h"
#include "daemon/gateway/client_connection.h"
#include "daemon/gateway/flight_table.h"
#include "daemon/gateway/request.h"
#include "daemon/gateway/tracer.h"
#include "daemon/metrics/rate_meter.h"
#include "daemon/supervisor/supervisor.h"

namespace afd::daemon {

class Gateway final : public SupervisorClient, public ClientHandler {
  public:
    struct Hooks {
        // Sends a message to the attention worker of a session.
        std::function<void(uint32_t session, const control::SupervisorMessage&)> send;
        // Adds what others know to the status (workers, waits).
        std::function<void(client::Status&)> fill_status;
        // Whom a client can trace.
        std::vector<TraceSource> trace_sources;
        // A client asks afdd to drain and exit.
        std::function<void()> stop;
        std::function<void()> all_ready;
        std::function<void(const std::string& why)> given_up;
    };

    // REQUIRES: `loop` and the model's tokenizer outlive the gateway.
    Gateway(EventLoop& loop, const Config& config, ServedModel model, Hooks hooks);
    ~Gateway() override;

    // Serves a client from now on.
    void add_connection(UniqueFd socket);

    // Refuses new requests, and calls `done` once nothing is in flight: no request, no unsent
    // answer. Cannot be taken back.
    void drain(std::function<void()> done);
    bool is_draining() const { return draining_; }

    // Ends every request with this error.
    void fail_all(const Error& error);

    size_t num_in_flight() const { return flights_.size(); }
    uint64_t num_finished() const { return num_finished_; }
    uint64_t num_failed() const { return num_failed_; }

    void on_all_ready() override;
    void on_attention_ready(uint32_t session, uint64_t kv_tokens) override;
    void on_attention_gone(uint32_t session) override;
    void on_events(uint32_t session, const control::Events& events) override;
    void on_given_up(const std::string& why) override;
    uint32_t num_sequences(uint32_t session) const override;

    void on_request(ClientConnection& connection, const client::Request& request) override;
    void on_closed(ClientConnection& connection) override;
    void on_progress(ClientConnection& connection) override;

  private:
    struct Drainer {
        ClientConnection* connection = nullptr;
        uint64_t request_id = 0;
        std::function<void()> done;
    };

    void generate(ClientConnection& connection, uint64_t request_id, const client::Generate& wish);
    Result<> accept(ClientConnection& connection,
                    uint64_t request_id,
                    const client::Generate& wish);
    void cancel(ClientConnection& connection, uint64_t request_id, uint64_t target);
    void cancel_flight(uint64_t id);
    void send_status(ClientConnection& connection, uint64_t request_id);

    void admit();
    void replay(uint64_t id);
    void on_token(uint64_t id, const control::TokenEvent& event);
    void on_end(uint64_t id, const control::EndEvent& event);
    void finish(uint64_t id, client::FinishReason reason);
    void fail(uint64_t id, const Error& error);
    void fail_slow_reader(ClientConnection& connection);
    Flight* flight_on(uint64_t id, uint32_t session);
    uint64_t kv_tokens() const;
    void send_chunk(const Flight& flight, client::Chunk chunk);

    // The end of every entry: writes what was queued, and ends a drain that has nothing left.
    void settle();
    void end_drains();
    void bury();

    EventLoop& loop_;
    const Config& config_;
    ServedModel model_;
    const Hooks hooks_;
    AdmissionQueue queue_;
    FlightTable flights_;
    ClientAnswers answers_;
    Tracer tracer_;
    std::vector<std::unique_ptr<ClientConnection>> connections_;
    std::vector<std::unique_ptr<ClientConnection>> closed_;
    Timer burial_;  // Destroys closed connections outside their own calls.
    std::vector<Drainer> drainers_;
    bool draining_ = false;
    bool all_ready_ = false;
    RateMeter rate_;
    const uint64_t started_ms_;
    uint64_t num_finished_ = 0;
    uint64_t num_failed_ = 0;
    uint64_t num_output_tokens_ = 0;
};

}  // namespace afd::daemon
