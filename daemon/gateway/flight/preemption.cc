// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/preemption.h"

#include "daemon/program/logging.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

void Preemption::on_gave_way(FlightTable::Id id) {
    const Flight& flight = flights_.at(id);
    if (flight.request->is_complete()) {
        ends_.finish(id, flight.request->finish_reason());
        return;
    }
    const uint32_t session = *queue_.session_of(id);
    if (!queue_.give_way(id)) {
        ends_.fail(id,
                   {Code::kInternal,
                    "the attention worker ended the request for want of KV room, though nothing "
                    "else ran there"});
        return;
    }
    counters_.requests().on_preempted();
    const auto num_unsaid = lines_.take(schedule::steady_now_us() / 1000);
    if (!num_unsaid) return;
    log::of_request(
        id,
        log::Level::kInfo,
        "gives way on attention worker {}, whose KV cache is full, and will go on behind "
        "{} tokens already sent{}",
        session,
        flight.request->num_output_tokens(),
        LogLimit::more(*num_unsaid));
}

}  // namespace afd::daemon
