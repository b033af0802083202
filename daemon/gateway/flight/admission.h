// SPDX-License-Identifier: Apache-2.0
#pragma once

// Admission: from what a client wishes to a request on an attention worker. Accepts a Generate as a
// flight, which then waits in the AdmissionQueue, and starts whatever has room.

#include <cstdint>

#include "daemon/config/config.h"
#include "daemon/gateway/flight/admission_queue.h"
#include "daemon/gateway/flight/client_answers.h"
#include "daemon/gateway/flight/flight_table.h"
#include "daemon/gateway/flight/resumable_requests.h"
#include "daemon/gateway/request/prompt.h"
#include "daemon/gateway/request/request.h"
#include "daemon/supervisor/attention_workers.h"

namespace afd::daemon {

class Admission {
  public:
    // All outlive the object.
    Admission(const Config& config,
              ServedModel& model,
              FlightTable& flights,
              AdmissionQueue& queue,
              ClientAnswers& answers,
              ResumableRequests& resumables,
              AttentionWorkers& workers);

    // What the configuration gives one attention worker: its kv_tokens in whole blocks.
    uint64_t configured_kv_tokens() const;

    // How much a request may have.
    TokenLimit token_limit() const { return {model_, kv_tokens()}; }

    // Whether there is a place for the request, whatever its prompt is. Errors: those of accept()
    // but what its prompt is refused for.
    Result<> check(const ClientSession& client,
                   uint64_t request_id,
                   const client::Generate& wish) const;

    // Queues the request and answers Accepted; it starts with the next admit(). Returns its flight.
    // Errors: kInvalidArgument: the wish (Request::create), or its id is in use on this session.
    // kResourceExhausted: the queue is full, or the session has its share of it, or too many
    // requests in flight.
    Result<FlightTable::Id> accept(ClientSession& client,
                                   uint64_t request_id,
                                   const client::Generate& wish);

    // Sends to the workers what can run now, also requests that a dead worker had.
    void admit();

  private:
    uint64_t kv_tokens() const;

    const Config& config_;
    ServedModel& model_;
    FlightTable& flights_;
    AdmissionQueue& queue_;
    ClientAnswers& answers_;
    ResumableRequests& resumables_;
    AttentionWorkers& workers_;
};

}  // namespace afd::daemon
