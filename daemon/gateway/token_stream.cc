// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/token_stream.h"

#include <string>
#include <utility>

#include "daemon/program/logging.h"
#include "schedule/adaptive_wait.h"

namespace afd::daemon {

TokenStream::TokenStream(FlightTable& flights,
                         const AdmissionQueue& queue,
                         ClientAnswers& answers,
                         FlightEnds& ends,
                         GatewayCounters& counters)
    : flights_(flights), queue_(queue), answers_(answers), ends_(ends), counters_(counters) {}

void TokenStream::on_events(uint32_t session, const control::Events& events) {
    for (const FlightTable::Id id : events.started()) {
        Flight* flight = flight_on(id, session);
        if (flight != nullptr && flight->started_us == 0) {
            flight->started_us = schedule::steady_now_us();
        }
    }
    for (const control::PromptLogprobsEvent& event : events.prompt_logprobs()) {
        Flight* flight = flight_on(event.sequence_id(), session);
        if (flight == nullptr) continue;
        std::optional<client::Chunk> chunk = flight->request->on_prompt_logprobs(event);
        if (chunk) answers_.chunk(*flight, *std::move(chunk));
    }
    for (const control::TokenEvent& event : events.tokens()) {
        if (flight_on(event.sequence_id(), session)) on_token(event.sequence_id(), event);
    }
    // Ends last: tokens of the same message belong before them.
    for (const control::EndEvent& event : events.ends()) {
        if (flight_on(event.sequence_id(), session)) on_end(event.sequence_id(), event);
    }
}

Flight* TokenStream::flight_on(FlightTable::Id id, uint32_t session) {
    // Events of a flight that has ended, or runs on another worker since: late, and nobody's
    // mistake.
    if (queue_.session_of(id) != session) return nullptr;
    return &flights_.at(id);
}

void TokenStream::on_token(FlightTable::Id id, const control::TokenEvent& event) {
    Flight& flight = flights_.at(id);
    Result<std::optional<client::Chunk>> chunk = flight.request->on_token(event);
    if (!chunk.ok()) {
        log::error("request {}: {}", id, chunk.error().message);
        ends_.stop_worker(id);
        ends_.fail(id, chunk.error());
        return;
    }
    if (flight.first_token_us == 0) flight.first_token_us = schedule::steady_now_us();
    counters_.count_token();
    if (chunk.value()) answers_.chunk(flight, *std::move(chunk).value());
}

void TokenStream::on_end(FlightTable::Id id, const control::EndEvent& event) {
    const Flight& flight = flights_.at(id);
    const auto code = static_cast<Code>(event.code());
    if (flight.is_cancelled) {
        ends_.finish(id, client::CANCELLED);
    } else if (code != Code::kOk) {
        const std::string why =
            event.message().empty() ? std::string(code_name(code)) : event.message();
        ends_.fail(id, {code, "the request ended early: " + why});
    } else if (!flight.request->is_complete()) {
        ends_.fail(
            id, {Code::kInternal, "the attention worker ended the request before its last token"});
    } else {
        ends_.finish(id, flight.request->finish_reason());
    }
}

}  // namespace afd::daemon
