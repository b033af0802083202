// SPDX-License-Identifier: Apache-2.0
#pragma once

// Preemption: what becomes of a request that has given way on its attention worker, because the
// tokens of older ones needed its KV room. It waits in front of all that came later and runs again
// behind the tokens already sent, as after the death of a worker (replay.h): its client sees a
// pause.
//
// The worker decides, and says so with its kEnd (daemon/attention/sequence_table.h): it alone knows
// when a token finds no block, so nothing has to be asked or granted, and no message can come too
// late. Here room is only counted, and never as less than the worker counts: each token is counted
// when it is heard, with a step beyond it (reservation.h).
//
// Progress: whoever gives way is the youngest on its worker, so the oldest request of all never
// does, nor does one that is alone; and each fits alone (Request::create). So the oldest comes to
// its end, then the next. In between one may give way again, but each time that it starts beside
// others all of them have room for a step, so that they have come on by that much.

#include "daemon/gateway/flight/admission_queue.h"
#include "daemon/gateway/flight/flight_ends.h"
#include "daemon/gateway/flight/flight_table.h"
#include "daemon/gateway/flight/gateway_counters.h"
#include "daemon/program/log_limit.h"

namespace afd::daemon {

class Preemption {
  public:
    // All outlive the object.
    Preemption(FlightTable& flights,
               AdmissionQueue& queue,
               FlightEnds& ends,
               GatewayCounters& counters)
        : flights_(flights), queue_(queue), ends_(ends), counters_(counters) {}

    // The worker of the request says that it has given way. One that was alone there since it came
    // cannot have: it ends with kInternal, or a worker could send it round for ever.
    void on_gave_way(FlightTable::Id id);

  private:
    FlightTable& flights_;
    AdmissionQueue& queue_;
    FlightEnds& ends_;
    GatewayCounters& counters_;
    LogLimit lines_;
};

}  // namespace afd::daemon
