// SPDX-License-Identifier: Apache-2.0
#include "clients/load/level_run.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "proto/check.h"

namespace afd::client {

LevelRun::LevelRun(Door& door,
                   const Workload& workload,
                   const Level& level,
                   const LevelExtent& extent,
                   std::chrono::microseconds request_timeout)
    : door_(door),
      workload_(workload),
      level_(level),
      extent_(extent),
      request_timeout_us_(request_timeout.count()) {
    result_.level = level;
    if (!level.is_open()) return;
    const double duration_s = static_cast<double>(extent.duration.count()) / 1e6;
    const auto by_duration = static_cast<uint64_t>(std::llround(level.rate * duration_s));
    const uint64_t num_requests = extent.num_requests.value_or(std::max<uint64_t>(1, by_duration));
    const double span_s =
        extent.num_requests ? static_cast<double>(num_requests) / level.rate : duration_s;
    arrivals_us_ = poisson_arrivals_us(num_requests, span_s, workload.seed);
    arrivals_end_us_ = std::llround(span_s * 1e6);
}

LevelResult LevelRun::run(uint64_t& next_request_id,
                          const Cancellation& cancellation,
                          const LevelObserver& observer) {
    next_request_id_ = &next_request_id;
    start_ = std::chrono::steady_clock::now();
    int64_t next_observation_us = 0;
    while (result_.broken.empty()) {
        start_due();
        expire();
        if (in_flight_.empty() && !may_start_more(now_us())) break;
        if (const int64_t now = now_us(); observer && now >= next_observation_us) {
            progress_.now_us = now;
            progress_.num_in_flight = in_flight_.size();
            observer(progress_);
            next_observation_us = now + std::chrono::microseconds(kObserverInterval).count();
        }
        const bool is_cancelled = wait(cancellation);
        receive();
        if (is_cancelled) {
            result_.interrupted = true;
            abandon_all(Outcome::kCancelled, {Code::kCancelled, "interrupted"});
            break;
        }
    }
    if (!result_.broken.empty()) {
        abandon_all(Outcome::kFailed, {Code::kUnavailable, result_.broken});
    } else if (!result_.interrupted) {
        result_.elapsed_us = std::max(result_.elapsed_us, arrivals_end_us_);
    }
    const int64_t total_us = std::max<int64_t>(1, now_us());
    busy_us_ += now_us() - loop_began_us_;
    result_.client.busy_ratio = static_cast<double>(busy_us_) / static_cast<double>(total_us);
    return std::move(result_);
}

int64_t LevelRun::now_us() const {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    return std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count();
}

bool LevelRun::may_start_more(int64_t at_us) const {
    if (level_.is_open()) return num_started_ < arrivals_us_.size();
    if (extent_.num_requests) return num_started_ < *extent_.num_requests;
    return at_us < extent_.duration.count();
}

bool LevelRun::is_start_due(int64_t at_us) const {
    if (!may_start_more(at_us)) return false;
    if (level_.is_open()) return arrivals_us_[num_started_] <= at_us;
    return in_flight_.size() < level_.concurrency && at_us >= paused_until_us_;
}

void LevelRun::start_due() {
    for (int i = 0; i < kStartsMax; ++i) {
        const int64_t at_us = now_us();
        if (!is_start_due(at_us)) return;
        start_request(level_.is_open() ? arrivals_us_[num_started_] : at_us);
    }
}

void LevelRun::start_request(int64_t intended_us) {
    const PlannedRequest planned = plan_request(workload_, num_started_++);
    const uint64_t request_id = (*next_request_id_)++;
    InFlight& entry = in_flight_[request_id];
    entry.record.index = planned.index;
    entry.record.prompt_index = planned.prompt_index;
    entry.record.max_tokens = planned.max_tokens;
    entry.record.intended_us = intended_us;
    entry.record.sent_us = level_.is_open() ? now_us() : intended_us;
    if (level_.is_open()) result_.client.lag_us.record(entry.record.sent_us - intended_us);
    ++progress_.num_sent;
    if (auto failure = door_.send(request_id, workload_, planned)) {
        end_request(request_id, Outcome::kFailed, *std::move(failure));
    }
}

void LevelRun::expire() {
    while (!in_flight_.empty()) {
        const auto& [request_id, entry] = *in_flight_.begin();
        // The first is the oldest, as ids and sending times ascend together.
        if (now_us() - entry.record.sent_us < request_timeout_us_) return;
        door_.give_up(request_id);
        end_request(
            request_id,
            Outcome::kFailed,
            Failure::of({Code::kDeadlineExceeded,
                         "not finished within " + std::to_string(request_timeout_us_ / 1000) +
                             " ms (--request-timeout)"}));
    }
}

int64_t LevelRun::next_event_us() const {
    if (door_.has_heard() || is_start_due(now_us())) return now_us();
    int64_t next_us = now_us() + std::chrono::microseconds(kObserverInterval).count();
    if (level_.is_open()) {
        if (may_start_more(now_us())) next_us = std::min(next_us, arrivals_us_[num_started_]);
    } else if (paused_until_us_ > now_us()) {
        next_us = std::min(next_us, paused_until_us_);
    }
    if (!in_flight_.empty()) {
        const int64_t oldest_us = in_flight_.begin()->second.record.sent_us;
        next_us = std::min(next_us, oldest_us + request_timeout_us_);
    }
    return next_us;
}

bool LevelRun::wait(const Cancellation& cancellation) {
    std::array<pollfd, 2> items = {door_.watched(), pollfd{cancellation.fd(), POLLIN, 0}};
    const int64_t timeout_us = std::max<int64_t>(0, next_event_us() - now_us());
    const timespec timeout = {timeout_us / 1'000'000, timeout_us % 1'000'000 * 1000};
    const int64_t wait_began_us = now_us();
    const int num_ready = ppoll(items.data(), items.size(), &timeout, nullptr);
    busy_us_ += wait_began_us - loop_began_us_;
    result_.client.loop_stall_us =
        std::max(result_.client.loop_stall_us, wait_began_us - loop_began_us_);
    loop_began_us_ = now_us();
    return num_ready > 0 && items[1].revents != 0;
}

void LevelRun::receive() {
    events_.clear();
    const Result<> received = door_.receive(events_);
    // Stamped with the end of the wait, all of a pass: the time that this client takes to parse
    // them is not the server's.
    for (DoorEvent& event : events_) take(event, loop_began_us_);
    if (!received.ok()) result_.broken = received.error().message;
}

void LevelRun::take(DoorEvent& event, int64_t arrived_us) {
    const auto found = in_flight_.find(event.request_id);
    AFD_ASSERT(found != in_flight_.end(),
               "request %llu",
               static_cast<unsigned long long>(event.request_id));
    InFlight& request = found->second;
    request.record.end_us = arrived_us;
    if (event.num_prompt_tokens > 0) request.record.num_prompt_tokens = event.num_prompt_tokens;
    request.record.num_cached_tokens = event.num_cached_tokens;
    switch (event.kind) {
        case DoorEvent::Kind::kAccepted:
            return;
        case DoorEvent::Kind::kTokens:
            take_tokens(request, event.num_tokens, arrived_us);
            return;
        case DoorEvent::Kind::kFinished:
            finish(request, event);
            return;
        case DoorEvent::Kind::kFailed:
            end_request(event.request_id, Outcome::kFailed, std::move(event.failure));
            return;
    }
}

void LevelRun::take_tokens(InFlight& request, uint64_t num_tokens, int64_t arrived_us) {
    progress_.num_tokens += num_tokens;
    request.record.num_tokens += num_tokens;
    if (request.record.num_chunks++ == 0) {
        request.record.first_token_us = arrived_us;
        request.num_first_tokens = num_tokens;
    } else {
        request.gaps.emplace_back(arrived_us - request.last_chunk_us, num_tokens);
    }
    request.last_chunk_us = arrived_us;
}

// Whether a request that ended without an error really did what it was asked.
void LevelRun::finish(InFlight& request, const DoorEvent& event) {
    RequestRecord& record = request.record;
    if (record.num_chunks > 0) {
        request.is_overcounted = event.num_tokens < record.num_tokens;
        if (event.num_tokens > record.num_tokens) {
            request.num_late_tokens = event.num_tokens - record.num_tokens;
        }
        record.num_tokens = event.num_tokens;
    }
    std::string fault;
    if (event.reason == DoorEvent::Reason::kCancelled) fault = "cancelled, but not by this client";
    if (event.num_tokens > 0 && record.num_chunks == 0) {
        fault =
            "finished after " + std::to_string(event.num_tokens) + " tokens, of which none came";
    }
    if (event.reason == DoorEvent::Reason::kLength && record.num_tokens == 0) {
        fault = "finished without a token";
    }
    if (workload_.ignore_eos && record.num_tokens != record.max_tokens) {
        fault = std::to_string(record.num_tokens) + " tokens instead of " +
                std::to_string(record.max_tokens) + " with --ignore-eos";
    }
    if (!fault.empty()) {
        end_request(event.request_id, Outcome::kFailed, Failure::of({Code::kDataLoss, fault}));
        return;
    }
    if (event.is_count_guessed) ++result_.num_guessed;
    record_latencies(request);
    end_request(event.request_id, Outcome::kOk);
}

void LevelRun::record_latencies(const InFlight& request) {
    const RequestRecord& record = request.record;
    // From the intended start: counted from the sending, an overloaded client would make the daemon
    // look fast.
    result_.e2e_us.record(record.end_us - record.intended_us);
    if (record.num_tokens == 0) return;  // The model ended its text at once.
    result_.ttft_us.record(record.first_token_us - record.intended_us);
    if (request.is_overcounted) {
        record_evenly(request, result_.itl_us);
        record_evenly(request, result_.itl_spread_us);
        return;
    }
    // Tokens of one chunk arrive at once: as a client sees them, the gaps between them are 0. The
    // other histogram shares the chunk's gap out among them.
    result_.itl_us.record(0, request.num_first_tokens - 1 + request.num_late_tokens);
    for (const auto& [gap_us, num_tokens] : request.gaps) {
        result_.itl_us.record(gap_us);
        result_.itl_us.record(0, num_tokens - 1);
    }
    record_spread(request);
}

void LevelRun::record_spread(const InFlight& request) {
    if (request.num_late_tokens > 0) {
        record_evenly(request, result_.itl_spread_us);
        return;
    }
    result_.itl_spread_us.record(0, request.num_first_tokens - 1);
    for (const auto& [gap_us, num_tokens] : request.gaps) {
        result_.itl_spread_us.record(gap_us / static_cast<int64_t>(num_tokens), num_tokens);
    }
}

// For tokens that are told without their chunks.
void LevelRun::record_evenly(const InFlight& request, Histogram& histogram) {
    const auto num_gaps = static_cast<int64_t>(request.record.num_tokens) - 1;
    if (num_gaps == 0) return;
    const int64_t span_us = request.last_chunk_us - request.record.first_token_us;
    histogram.record(span_us / num_gaps, static_cast<uint64_t>(num_gaps));
}

void LevelRun::end_request(uint64_t request_id, Outcome outcome, Failure failure) {
    auto node = in_flight_.extract(request_id);
    AFD_ASSERT(!node.empty(), "request %llu", static_cast<unsigned long long>(request_id));
    RequestRecord record = node.mapped().record;
    record.outcome = outcome;
    if (outcome != Outcome::kOk) {
        record.end_us = now_us();
        record.failure = std::move(failure);
    }
    result_.elapsed_us = std::max(result_.elapsed_us, record.end_us);
    result_.requests.push_back(std::move(record));
    if (outcome == Outcome::kOk) ++progress_.num_ok;
    if (outcome != Outcome::kFailed) return;
    ++progress_.num_failed;
    paused_until_us_ = now_us() + std::chrono::microseconds(kPauseAfterFailure).count();
}

void LevelRun::abandon_all(Outcome outcome, const afd::Error& error) {
    while (!in_flight_.empty()) {
        const uint64_t request_id = in_flight_.begin()->first;
        door_.give_up(request_id);
        end_request(request_id, outcome, Failure::of(error));
    }
}

}  // namespace afd::client
