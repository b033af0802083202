// SPDX-License-Identifier: Apache-2.0
#pragma once

// Suspects: requests that attention workers seem to die of, and what becomes of them (R11). On
// which worker one runs, and that nothing runs beside it, is decided in admission_queue.h.
//
// A worker that ends by its own fault (worker_end.h) may have died of any request that it had: each
// has one death more. The next token of a request takes all of its deaths back, because what kills
// at a place does so each time that it is computed.
//
//   1 death   it runs again with the others
//   2         it is a suspect and goes on trial: alone on a worker, for one token
//   3         it ends, unless the worker may be to blame: one that was given others before, which
//             may have left it broken, or the only one of several that has died of it. Then the
//             next trial is on a new one, or on another
//
// So a request ends only of deaths in a row, the last of them its own doing. One that only ran
// beside another that kills has a token when it is alone, and loses nothing but time. Deaths by
// signals from outside count neither way.

#include <cstdint>
#include <string>

#include "daemon/gateway/flight/admission_queue.h"
#include "daemon/gateway/flight/flight_ends.h"
#include "daemon/gateway/flight/flight_table.h"
#include "daemon/gateway/flight/gateway_counters.h"
#include "daemon/supervisor/attention_workers.h"
#include "daemon/supervisor/worker_end.h"

namespace afd::daemon {

class Suspects {
  public:
    static constexpr uint32_t kSuspectDeaths = 2;

    // All outlive the object.
    Suspects(FlightTable& flights,
             AdmissionQueue& queue,
             FlightEnds& ends,
             GatewayCounters& counters,
             AttentionWorkers& workers);

    // The worker of `session`, which ran it, is gone, and it waits. `was_given_others`: that worker
    // was, since its start. Returns whether it runs again; else it has ended here.
    bool outlives(FlightTable::Id id,
                  uint32_t session,
                  const WorkerEnd& end,
                  bool was_given_others);
    // Some have not, and all of that worker were asked about. May call the gateway back.
    void excuse_deaths();

    // It has got a token.
    void on_token(FlightTable::Id id, Flight& flight);

    // Its worker has ended it before its last token. Returns whether that was the end of its trial:
    // then it waits again.
    bool end_trial(FlightTable::Id id);

  private:
    bool is_deadly(const WorkerDeaths& deaths, uint32_t session, bool was_given_others) const;
    void convict(FlightTable::Id id, const std::string& how);

    FlightTable& flights_;
    AdmissionQueue& queue_;
    FlightEnds& ends_;
    GatewayCounters& counters_;
    AttentionWorkers& workers_;
    bool has_served_ = true;  // Some request has got a token since the last one that has ended so.
};

}  // namespace afd::daemon
