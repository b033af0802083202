// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/flight_ends.h"

#include <utility>

#include "daemon/program/logging.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

FlightEnds::FlightEnds(FlightTable& flights,
                       AdmissionQueue& queue,
                       ClientAnswers& answers,
                       GatewayCounters& counters,
                       SessionTable& sessions,
                       AttentionWorkers& workers)
    : flights_(flights),
      queue_(queue),
      answers_(answers),
      counters_(counters),
      sessions_(sessions),
      workers_(workers) {}

void FlightEnds::finish(FlightTable::Id id, client::FinishReason reason) {
    const Flight& flight = flights_.at(id);
    Request& request = *flight.request;
    const uint64_t now_us = schedule::steady_now_us();
    std::optional<client::Chunk> rest = request.on_end();
    // The rest may have been a stop string.
    if (reason == client::LENGTH) reason = request.finish_reason();
    const client::Finished ended = flight.summary(reason, now_us);
    // A disowned one was counted as failed when its client heard so.
    if (!flight.is_disowned) {
        counters_.count_finished();
        counters_.requests().on_finished(flight.moments,
                                         now_us,
                                         ended,
                                         request.max_total_tokens() - request.num_prompt_tokens());
    }
    log::of_request(id,
                    log::Level::kDebug,
                    "{} after {} prompt and {} output tokens, {:.1f} ms",
                    reason == client::CANCELLED ? "cancelled" : "finished",
                    request.num_prompt_tokens(),
                    request.num_output_tokens(),
                    static_cast<double>(now_us - flight.moments.accepted_us) / 1e3);
    if (flight.client != nullptr) {
        if (rest) answers_.chunk(flight, *std::move(rest));
        answers_.finished(flight, ended);
    }
    erase(id);
}

void FlightEnds::fail(FlightTable::Id id, const Error& error) {
    const Flight& flight = flights_.at(id);
    counters_.count_failed(error.code);
    log::of_request(id, log::Level::kDebug, "ends with an error: {}", error.message);
    answers_.error(flight, error);
    erase(id);
}

void FlightEnds::fail_all(const Error& error) {
    for (const FlightTable::Id id : flights_.ids()) fail(id, error);
}

void FlightEnds::cancel(FlightTable::Id id) {
    Flight& flight = flights_.at(id);
    if (flight.is_cancelled) return;
    flight.is_cancelled = true;
    // A running one ends when its worker says so: until then its room there is taken.
    if (queue_.session_of(id)) {
        stop_worker(id);
    } else {
        finish(id, client::CANCELLED);
    }
}

void FlightEnds::disown(FlightTable::Id id, const Error& error) {
    Flight& flight = flights_.at(id);
    answers_.error(flight, error);
    log::of_request(id, log::Level::kDebug, "ends with an error: {}", error.message);
    if (flight.has_connection()) sessions_.touch(*flight.client);
    flight.client = nullptr;
    flight.is_disowned = true;
    counters_.count_failed(error.code);
    cancel(id);
}

void FlightEnds::disown_all(const Error& error) {
    for (const FlightTable::Id id : flights_.ids()) {
        // One without a client is ending already.
        if (flights_.at(id).client != nullptr) disown(id, error);
    }
}

void FlightEnds::abandon(const ClientSession& client) {
    for (const FlightTable::Id id : flights_.ids_of(client)) {
        flights_.at(id).client = nullptr;
        cancel(id);
    }
}

void FlightEnds::stop_worker(FlightTable::Id id) {
    control::SupervisorMessage message;
    message.mutable_cancel()->set_sequence_id(id);
    workers_.send(*queue_.session_of(id), message);
}

void FlightEnds::erase(FlightTable::Id id) {
    // Who waited for it until now was not idle.
    const Flight& flight = flights_.at(id);
    if (flight.has_connection()) sessions_.touch(*flight.client);
    queue_.remove(id);
    flights_.erase(id);
    log::forget_request(id);
}

}  // namespace afd::daemon
