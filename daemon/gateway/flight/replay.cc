// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/replay.h"

#include "daemon/program/logging.h"

namespace afd::daemon {

void Replay::on_attention_gone(uint32_t session, const WorkerEnd& end) {
    const bool was_given_others = queue_.workers()[session].num_given > 1;
    bool have_all_outlived_it = true;
    for (const FlightTable::Id id : queue_.worker_gone(session)) {
        const Flight& flight = flights_.at(id);
        if (flight.is_cancelled) {
            ends_.finish(id, client::CANCELLED);
        } else if (flight.request->is_complete()) {
            // The worker died between its last token and its kEnd.
            ends_.finish(id, flight.request->finish_reason());
        } else if (suspects_.outlives(id, session, end, was_given_others)) {
            counters_.requests().on_replayed();
            log::of_request(id,
                            log::Level::kInfo,
                            "will run again, behind {} tokens already sent",
                            flight.request->num_output_tokens());
        } else {
            have_all_outlived_it = false;
        }
    }
    if (!have_all_outlived_it) suspects_.excuse_deaths();
}

}  // namespace afd::daemon
