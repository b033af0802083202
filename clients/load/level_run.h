// SPDX-License-Identifier: Apache-2.0
#pragma once

// LevelRun: drives one level of load through a Door and records every request. One thread, one poll
// loop; knows nothing of protocols, nor of tables, files or terminals (LevelObserver).

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "clients/cancellation.h"
#include "clients/load/door.h"
#include "clients/load/level_result.h"
#include "clients/load/workload.h"
#include "proto/status.h"

namespace afd::client {

// How long a level lasts: until num_requests have been sent, or for its duration. What is in flight
// at the end is waited for.
struct LevelExtent {
    std::optional<uint64_t> num_requests;
    std::chrono::microseconds duration{0};  // Without num_requests.
};

// What a live display wants to know.
struct LevelProgress {
    int64_t now_us = 0;
    uint64_t num_sent = 0;
    uint64_t num_ok = 0;
    uint64_t num_failed = 0;
    uint64_t num_in_flight = 0;
    uint64_t num_tokens = 0;  // Received, also of requests still in flight.
};
using LevelObserver = std::function<void(const LevelProgress&)>;

class LevelRun {
  public:
    static constexpr std::chrono::milliseconds kObserverInterval{100};
    // In a closed loop nothing is sent for this long after a failed request, so that an afdd that
    // refuses at once is not asked thousands of times.
    static constexpr std::chrono::milliseconds kPauseAfterFailure{100};

    // So many are sent at most before the loop looks again at what was heard and at Ctrl-C, however
    // far an open loop is behind its arrivals.
    static constexpr int kStartsMax = 64;

    LevelRun(Door& door,
             const Workload& workload,
             const Level& level,
             const LevelExtent& extent,
             std::chrono::microseconds request_timeout);

    // `next_request_id` goes on over the levels of a run, so that late answers to requests
    // that were given up are told apart.
    LevelResult run(uint64_t& next_request_id,
                    const Cancellation& cancellation,
                    const LevelObserver& observer);

  private:
    struct InFlight {
        RequestRecord record;
        int64_t last_chunk_us = 0;
        std::vector<std::pair<int64_t, uint64_t>> gaps;  // (gap, tokens) of the later chunks.
        uint64_t num_first_tokens = 0;                   // Of the first chunk.
        uint64_t num_late_tokens = 0;                    // Of unknown chunks, told at the end.
        bool is_overcounted = false;                     // Fewer than came, told at the end.
    };

    int64_t now_us() const;
    bool may_start_more(int64_t at_us) const;
    bool is_start_due(int64_t at_us) const;
    void start_due();
    void start_request(int64_t intended_us);
    void expire();
    // True if Ctrl-C came.
    bool wait(const Cancellation& cancellation);
    int64_t next_event_us() const;
    void receive();
    void take(DoorEvent& event, int64_t arrived_us);
    void take_tokens(InFlight& request, uint64_t num_tokens, int64_t arrived_us);
    void finish(InFlight& request, const DoorEvent& event);
    void record_latencies(const InFlight& request);
    void record_spread(const InFlight& request);
    void record_evenly(const InFlight& request, Histogram& histogram);
    void end_request(uint64_t request_id, Outcome outcome, Failure failure = {});
    void abandon_all(Outcome outcome, const afd::Error& error);

    Door& door_;
    const Workload& workload_;
    Level level_;
    LevelExtent extent_;
    int64_t request_timeout_us_;
    // Open loop.
    std::vector<int64_t> arrivals_us_;
    int64_t arrivals_end_us_ = 0;

    uint64_t* next_request_id_ = nullptr;

    std::chrono::steady_clock::time_point start_;
    uint64_t num_started_ = 0;
    int64_t paused_until_us_ = 0;
    std::map<uint64_t, InFlight> in_flight_;  // By request id: the first is the oldest.
    std::vector<DoorEvent> events_;
    LevelProgress progress_;
    int64_t loop_began_us_ = 0;  // End of the last wait.
    int64_t busy_us_ = 0;
    LevelResult result_;
};

}  // namespace afd::client
