// SPDX-License-Identifier: Apache-2.0
#pragma once

// FlightEnds: the ways in which a request in flight ends. Each way tells the client, gives the KV
// room back and counts; nobody else removes a flight.
//
// A running request that is to end early keeps its room until its worker has let go of it: cancel()
// and disown() only ask, and the worker's kEnd brings it to finish().

#include <cstdint>

#include "daemon/gateway/flight/admission_queue.h"
#include "daemon/gateway/flight/client_answers.h"
#include "daemon/gateway/flight/flight_table.h"
#include "daemon/gateway/flight/gateway_counters.h"
#include "daemon/gateway/session/session_table.h"
#include "daemon/supervisor/attention_workers.h"

namespace afd::daemon {

class FlightEnds {
  public:
    // All outlive the object.
    FlightEnds(FlightTable& flights,
               AdmissionQueue& queue,
               ClientAnswers& answers,
               GatewayCounters& counters,
               SessionTable& sessions,
               AttentionWorkers& workers);

    // It is over: the client gets the rest of its text and Finished.
    void finish(FlightTable::Id id, client::FinishReason reason);
    // It is over: the client gets the error.
    void fail(FlightTable::Id id, const Error& error);
    void fail_all(const Error& error);

    // Ends a waiting request as CANCELLED; asks the worker of a running one.
    void cancel(FlightTable::Id id);
    // The same for a client that hears `error` now and nothing more of it.
    void disown(FlightTable::Id id, const Error& error);
    // The same for all requests that a client waits for.
    void disown_all(const Error& error);
    // The same for all requests of a client that is gone.
    void abandon(const ClientSession& client);

    // Tells the worker of a running request to stop; its kEnd is still to come.
    void stop_worker(FlightTable::Id id);

  private:
    void erase(FlightTable::Id id);

    FlightTable& flights_;
    AdmissionQueue& queue_;
    ClientAnswers& answers_;
    GatewayCounters& counters_;
    SessionTable& sessions_;
    AttentionWorkers& workers_;
};

}  // namespace afd::daemon
