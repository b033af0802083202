// SPDX-License-Identifier: Apache-2.0
#pragma once

// HopSampler: measures what rounds lose between two workers. While requests run it turns the trace
// rings of all workers on for 20 ms of each second and puts the events of each round together: who
// published when is known on one side, who took it when on the other, and no word of the windows
// has room for either. While nothing runs it costs nothing.
//
// The rings have one reader at a time: a client's trace comes first.

#include <cstdint>
#include <vector>

#include "daemon/gateway/tracer.h"
#include "daemon/loop/event_loop.h"
#include "daemon/metrics/hop_times.h"

namespace afd::daemon {

// Adds the hops of rounds whose dispatch is among the events. `attention` was taken from the rings
// before `ffn`, so that what a round's end has seen is there.
void add_hops(const std::vector<TraceEvent>& attention,
              const std::vector<TraceEvent>& ffn,
              HopTimes& times);

class HopSampler {
  public:
    HopSampler(EventLoop& loop, const std::vector<TraceSource>& sources);
    ~HopSampler() { stop_sample(); }

    // Whether to sample from now on.
    void run_while(bool is_running);
    // There are other workers now; a running sample is dropped. REQUIRES: the rings of the old ones
    // still exist.
    void set_sources(const std::vector<TraceSource>& sources);
    // Drops the running sample and leaves the rings as they are: they have a new reader.
    void pause();

    const HopTimes& times() const { return times_; }

  private:
    struct Source {
        TraceRing ring;
        bool is_attention = false;
        uint64_t next = 0;  // Number of its next event.
    };

    void on_timer();
    void start_timer();
    void begin_sample();
    void end_sample();
    void stop_sample();

    const EventLoop& loop_;
    std::vector<Source> sources_;
    Timer timer_;
    bool is_running_ = false;
    bool is_sampling_ = false;
    uint64_t next_ms_ = 0;  // When the next sample may begin.
    HopTimes times_;
    std::vector<TraceEvent> attention_;
    std::vector<TraceEvent> ffn_;
};

}  // namespace afd::daemon
