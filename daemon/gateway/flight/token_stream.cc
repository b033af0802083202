// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/token_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/program/logging.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

TokenStream::TokenStream(FlightTable& flights,
                         AdmissionQueue& queue,
                         ClientAnswers& answers,
                         FlightEnds& ends,
                         GatewayCounters& counters,
                         Suspects& suspects,
                         Preemption& preemption)
    : flights_(flights),
      queue_(queue),
      answers_(answers),
      ends_(ends),
      counters_(counters),
      suspects_(suspects),
      preemption_(preemption) {}

void TokenStream::on_events(uint32_t session, const control::Events& events) {
    for (const control::StartedEvent& event : events.started()) {
        Flight* flight = flight_on(event.sequence_id(), session);
        if (flight == nullptr || flight->moments.started_us != 0) continue;
        flight->moments.started_us = schedule::steady_now_us();
        const uint32_t num_prompt_tokens = flight->request->num_prompt_tokens();
        flight->num_cached_tokens = std::min(event.num_cached_tokens(), num_prompt_tokens);
        counters_.requests().on_started(
            flight->moments, num_prompt_tokens, flight->num_cached_tokens);
    }
    for (const control::PromptLogprobsEvent& event : events.prompt_logprobs()) {
        if (flight_on(event.sequence_id(), session)) on_prompt_logprobs(event.sequence_id(), event);
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

void TokenStream::on_prompt_logprobs(FlightTable::Id id,
                                     const control::PromptLogprobsEvent& event) {
    Flight& flight = flights_.at(id);
    if (flight.is_cancelled) return;
    Result<std::optional<client::Chunk>> chunk = flight.request->on_prompt_logprobs(event);
    if (!chunk.ok()) {
        distrust(id, chunk.error());
    } else if (chunk.value()) {
        answers_.chunk(flight, *std::move(chunk).value());
    }
}

void TokenStream::distrust(FlightTable::Id id, const Error& error) {
    log::of_request(id, log::Level::kError, "{}", error.message);
    // Its room is free when the worker has let go of it.
    ends_.disown(id, error);
}

void TokenStream::on_token(FlightTable::Id id, const control::TokenEvent& event) {
    Flight& flight = flights_.at(id);
    // Whoever hears it, the worker has it.
    queue_.on_token(id);
    // The client hears no more of a cancelled request, so its end must not count more tokens
    // either.
    if (flight.is_cancelled || flight.request->is_text_over()) return;
    Result<std::optional<client::Chunk>> chunk = flight.request->on_token(event);
    if (!chunk.ok()) {
        distrust(id, chunk.error());
        return;
    }
    const uint64_t now_us = schedule::steady_now_us();
    counters_.count_token(flight.moments, now_us);
    if (flight.moments.first_token_us == 0) flight.moments.first_token_us = now_us;
    flight.moments.last_token_us = now_us;
    suspects_.on_token(id, flight);
    if (chunk.value()) answers_.chunk(flight, *std::move(chunk).value());
    // Its client hears the end when the worker has let go of its KV room.
    if (flight.request->is_text_over()) ends_.stop_worker(id);
}

void TokenStream::on_end(FlightTable::Id id, const control::EndEvent& event) {
    const Flight& flight = flights_.at(id);
    const auto code = static_cast<Code>(event.code());
    if (flight.is_cancelled) {
        ends_.finish(id, client::CANCELLED);
    } else if (flight.request->is_text_over()) {
        // Cancelled because of that, or at its own end just then.
        ends_.finish(id, client::STOP);
    } else if (event.gave_way()) {
        preemption_.on_gave_way(id);
    } else if (code != Code::kOk) {
        const std::string why =
            event.message().empty() ? std::string(code_name(code)) : event.message();
        ends_.fail(id, {code, "the request ended early: " + why});
    } else if (!flight.request->is_complete()) {
        if (suspects_.end_trial(id)) return;
        ends_.fail(
            id, {Code::kInternal, "the attention worker ended the request before its last token"});
    } else {
        ends_.finish(id, flight.request->finish_reason());
    }
}

}  // namespace afd::daemon
