// SPDX-License-Identifier: Apache-2.0
#pragma once

// Replay: what becomes of the requests of an attention worker that is gone. Those with work left
// wait in front of all others and run again behind the tokens already sent, so that their clients
// see a pause (promise 2); the rest end here, and so does one that it has died of (suspects.h).

#include <cstdint>

#include "daemon/gateway/flight/admission_queue.h"
#include "daemon/gateway/flight/flight_ends.h"
#include "daemon/gateway/flight/flight_table.h"
#include "daemon/gateway/flight/gateway_counters.h"
#include "daemon/gateway/flight/suspects.h"
#include "daemon/supervisor/worker_end.h"

namespace afd::daemon {

class Replay {
  public:
    // All outlive the object.
    Replay(FlightTable& flights,
           AdmissionQueue& queue,
           FlightEnds& ends,
           GatewayCounters& counters,
           Suspects& suspects)
        : flights_(flights), queue_(queue), ends_(ends), counters_(counters), suspects_(suspects) {}

    void on_attention_gone(uint32_t session, const WorkerEnd& end);

  private:
    FlightTable& flights_;
    AdmissionQueue& queue_;
    FlightEnds& ends_;
    GatewayCounters& counters_;
    Suspects& suspects_;
};

}  // namespace afd::daemon
