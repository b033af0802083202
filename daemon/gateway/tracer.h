// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tracer: turns on the trace of every worker for a while and hands out what they did, for one
// client at a time. All on afdd's loop.
//
// The rings of the workers hold a few tenths of a second, so it looks often; a client that does
// not read what it has been sent gets nothing new, and misses what is overwritten meanwhile. When
// the trace ends the rings stand still, and what they hold is told as the client reads it, for a
// while.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "daemon/gateway/flight/client_answers.h"
#include "daemon/loop/event_loop.h"
#include "daemon/metrics/trace_ring.h"
#include "proto/client.pb.h"

namespace afd::daemon {

// A worker that can be traced; the ring outlives its processes.
struct TraceSource {
    std::string role;  // "attention", "ffn".
    uint32_t index = 0;
    TraceRing ring;
};

class Tracer {
  public:
    static constexpr uint64_t kDurationMsMax = 600'000;

    // Events are queued while less than `queued_max` bytes are; more of them wait in their ring.
    // `flush` is called after answers were queued outside start() and cancel().
    // `answers` outlives the object.
    Tracer(EventLoop& loop,
           std::vector<TraceSource> sources,
           ClientAnswers& answers,
           size_t queued_max,
           std::function<void()> flush);
    ~Tracer() { turn(false); }

    // Queues TraceEvents and, behind the last of them, Done on the connection.
    // Errors: kInvalidArgument, a duration out of range; kUnavailable, another trace is running.
    Result<> start(ClientSession& client, uint64_t request_id, const client::Trace& wish);
    // Ends the trace if this is its request; Done follows as usual.
    void cancel(const ClientSession& client, uint64_t request_id);
    bool is_on() const { return client_ != nullptr; }
    // Whether a trace is running, and of this connection.
    bool is_for(const ClientSession& client) const { return client_ == &client; }
    // Ends it without an answer if it is of this connection, which is closed.
    void forget(const ClientSession& client);
    // There are other workers now. A trace goes on with them, behind what the old ones have left.
    // REQUIRES: the rings of the old ones still exist.
    void set_sources(std::vector<TraceSource> sources);

  private:
    struct Worker {
        TraceSource source;
        uint64_t next = 0;  // Number of its next event.
        uint64_t num_lost = 0;
    };

    void add_sources(std::vector<TraceSource> sources);
    void turn(bool on);
    void begin_now();
    void look();
    void send_all();
    void send(Worker& worker);
    void tell(Worker& worker, std::span<const TraceEvent> part);
    bool has_more() const;
    void count_rest();
    void end();

    EventLoop& loop_;
    std::vector<Worker> workers_;
    ClientAnswers& answers_;
    const size_t queued_max_;
    const std::function<void()> flush_;
    Timer timer_;
    ClientSession* client_ = nullptr;  // Null: no trace is running.
    uint64_t request_id_ = 0;
    uint64_t end_ms_ = 0;     // Of the trace, or of its end.
    bool is_ending_ = false;  // What the rings hold is still to be told.
    std::vector<TraceEvent> taken_;
};

}  // namespace afd::daemon
