// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenStream: from what the attention workers report to what the clients read. Events of a request
// that has ended, or that runs on another worker since a replay, count for nothing.

#include <cstdint>

#include "daemon/gateway/flight/admission_queue.h"
#include "daemon/gateway/flight/client_answers.h"
#include "daemon/gateway/flight/flight_ends.h"
#include "daemon/gateway/flight/flight_table.h"
#include "daemon/gateway/flight/gateway_counters.h"
#include "daemon/gateway/flight/preemption.h"
#include "daemon/gateway/flight/suspects.h"
#include "proto/control.pb.h"

namespace afd::daemon {

class TokenStream {
  public:
    // All outlive the object.
    TokenStream(FlightTable& flights,
                AdmissionQueue& queue,
                ClientAnswers& answers,
                FlightEnds& ends,
                GatewayCounters& counters,
                Suspects& suspects,
                Preemption& preemption);

    // A token outside the vocabulary, or one too many: the client hears kInternal, and the worker
    // is told to stop. A worker's error ends its request with that.
    void on_events(uint32_t session, const control::Events& events);

  private:
    void on_token(FlightTable::Id id, const control::TokenEvent& event);
    void on_prompt_logprobs(FlightTable::Id id, const control::PromptLogprobsEvent& event);
    // The worker sent what it must not.
    void distrust(FlightTable::Id id, const Error& error);
    void on_end(FlightTable::Id id, const control::EndEvent& event);
    Flight* flight_on(FlightTable::Id id, uint32_t session);

    FlightTable& flights_;
    AdmissionQueue& queue_;
    ClientAnswers& answers_;
    FlightEnds& ends_;
    GatewayCounters& counters_;
    Suspects& suspects_;
    Preemption& preemption_;
};

}  // namespace afd::daemon
