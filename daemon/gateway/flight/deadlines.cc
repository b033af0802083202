// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/deadlines.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

namespace {

std::string what_became_of(const Flight& flight) {
    if (flight.moments.started_us == 0) return "it has waited in the queue until now";
    const double queued_ms =
        static_cast<double>(flight.moments.started_us - flight.moments.accepted_us) / 1e3;
    return fmt::format("{:.0f} ms of it in the queue, and {} tokens were generated",
                       queued_ms,
                       flight.request->num_output_tokens());
}

Error error_of(const Flight& flight) {
    return {Code::kDeadlineExceeded,
            fmt::format("the request has taken longer than its {} ms (timeout_ms, or "
                        "request_timeout_ms of the instance): {}; ask for less, or give it more",
                        (flight.deadline_us - flight.moments.accepted_us) / 1000,
                        what_became_of(flight))};
}

}  // namespace

Deadlines::Deadlines(EventLoop& loop,
                     FlightTable& flights,
                     FlightEnds& ends,
                     std::function<void()> after_ends)
    : flights_(flights),
      ends_(ends),
      after_ends_(std::move(after_ends)),
      timer_(loop, [this] { on_timer(); }) {}

uint64_t Deadlines::timeout_ms(uint64_t wished_ms, uint64_t limit_ms) {
    if (wished_ms == 0 || limit_ms == 0) return std::max(wished_ms, limit_ms);
    return std::min(wished_ms, limit_ms);
}

void Deadlines::watch(FlightTable::Id id) {
    const Flight& flight = flights_.at(id);
    if (flight.deadline_us == 0 || (next_us_ != 0 && next_us_ <= flight.deadline_us)) return;
    wait_until(flight.deadline_us, flight.moments.accepted_us);
}

void Deadlines::wait_until(uint64_t deadline_us, uint64_t now_us) {
    next_us_ = deadline_us;
    // The timer counts from the begin of the loop's turn: it may fire early, looks, and waits on.
    timer_.start((deadline_us - now_us) / 1000 + 1);
}

void Deadlines::on_timer() {
    const uint64_t now_us = schedule::steady_now_us();
    bool has_ended = false;
    uint64_t next_us = 0;
    for (const FlightTable::Id id : flights_.ids()) {
        const Flight& flight = flights_.at(id);
        // One without a client is ending already.
        if (flight.deadline_us == 0 || flight.client == nullptr) continue;
        if (flight.deadline_us <= now_us) {
            ends_.disown(id, error_of(flight));
            has_ended = true;
        } else if (next_us == 0 || flight.deadline_us < next_us) {
            next_us = flight.deadline_us;
        }
    }
    next_us_ = 0;
    if (next_us != 0) wait_until(next_us, now_us);
    if (has_ended) after_ends_();
}

}  // namespace afd::daemon
