// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/replay.h"

#include "daemon/program/logging.h"

namespace afd::daemon {

void Replay::on_attention_gone(uint32_t session) {
    for (const FlightTable::Id id : queue_.worker_gone(session)) {
        const Flight& flight = flights_.at(id);
        if (flight.is_cancelled) {
            ends_.finish(id, client::CANCELLED);
        } else if (flight.request->is_complete()) {
            // The worker died between its last token and its kEnd.
            ends_.finish(id, flight.request->finish_reason());
        } else {
            counters_.requests().on_replayed();
            log::of_request(id,
                            log::Level::kInfo,
                            "will run again, behind {} tokens already sent",
                            flight.request->num_output_tokens());
        }
    }
}

}  // namespace afd::daemon
