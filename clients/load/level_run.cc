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

LevelRun::LevelRun(Connection& connection,
                   const Workload& workload,
                   const Level& level,
                   const LevelExtent& extent,
                   std::chrono::microseconds request_timeout)
    : connection_(connection),
      workload_(workload),
      level_(level),
      extent_(extent),
      request_timeout_us_(request_timeout.count()) {
    result_.level = level;
    if (!level.is_open()) return;
    const double duration_s = static_cast<double>(extent.duration.count()) / 1e6;
    const auto by_duration = static_cast<uint64_t>(std::llround(level.rate * duration_s));
    arrivals_us_ =
        poisson_arrivals_us(level.rate,
                            std::max<uint64_t>(1, extent.num_requests.value_or(by_duration)),
                            workload.seed);
}

LevelResult LevelRun::run(uint64_t& next_request_id,
                          const Cancellation& cancellation,
                          const LevelObserver& observer) {
    next_request_id_ = &next_request_id;
    start_ = Clock::now();
    int64_t next_observation_us = 0;
    while (result_.broken.empty()) {
        start_due();
        expire();
        if (in_flight_.empty() && !may_start_more()) break;
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
    }
    const int64_t total_us = std::max<int64_t>(1, now_us());
    busy_us_ += now_us() - loop_began_us_;
    result_.client.busy_ratio = static_cast<double>(busy_us_) / static_cast<double>(total_us);
    return std::move(result_);
}

int64_t LevelRun::now_us() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start_).count();
}

bool LevelRun::may_start_more() const {
    if (level_.is_open()) return num_started_ < arrivals_us_.size();
    if (extent_.num_requests) return num_started_ < *extent_.num_requests;
    return now_us() < extent_.duration.count();
}

void LevelRun::start_due() {
    if (level_.is_open()) {
        while (may_start_more() && arrivals_us_[num_started_] <= now_us()) {
            start_request(arrivals_us_[num_started_]);
        }
        return;
    }
    while (in_flight_.size() < level_.concurrency && now_us() >= paused_until_us_ &&
           may_start_more()) {
        start_request(now_us());
    }
}

void LevelRun::start_request(int64_t intended_us) {
    const PlannedRequest planned = plan_request(workload_, num_started_++);
    Request request;
    request.set_request_id((*next_request_id_)++);
    *request.mutable_generate() = to_message(workload_, planned);

    InFlight& entry = in_flight_[request.request_id()];
    entry.record.index = planned.index;
    entry.record.prompt_index = planned.prompt_index;
    entry.record.max_tokens = planned.max_tokens;
    entry.record.intended_us = intended_us;
    entry.record.sent_us = level_.is_open() ? now_us() : intended_us;
    if (level_.is_open()) result_.client.lag_us.record(entry.record.sent_us - intended_us);
    ++progress_.num_sent;
    const Result<> sent = connection_.send(request);
    if (!sent.ok()) end_request(request.request_id(), Outcome::kFailed, sent.error());
}

void LevelRun::expire() {
    while (!in_flight_.empty()) {
        const auto& [request_id, entry] = *in_flight_.begin();
        // The first is the oldest, as ids and sending times ascend together.
        if (now_us() - entry.record.sent_us < request_timeout_us_) return;
        Request request;
        request.set_request_id((*next_request_id_)++);
        request.mutable_cancel()->set_target(request_id);
        // If this fails the connection is broken, which receive() reports.
        static_cast<void>(connection_.send(request).ok());
        end_request(request_id,
                    Outcome::kFailed,
                    {Code::kDeadlineExceeded,
                     "not finished within " + std::to_string(request_timeout_us_ / 1000) +
                         " ms (--request-timeout)"});
    }
}

int64_t LevelRun::next_event_us() const {
    int64_t next_us = now_us() + std::chrono::microseconds(kObserverInterval).count();
    if (level_.is_open()) {
        if (may_start_more()) next_us = std::min(next_us, arrivals_us_[num_started_]);
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
    std::array<pollfd, 2> items = {pollfd{connection_.fd(), connection_.events(), 0},
                                   pollfd{cancellation.fd(), POLLIN, 0}};
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
    const Result<> flushed = connection_.flush();
    responses_.clear();
    const Result<> received = connection_.receive(responses_);
    // Stamped with the end of the wait, all of a pass: the time that this client takes to parse
    // them is not the daemon's.
    for (const Response& response : responses_) take(response, loop_began_us_);
    if (!received.ok()) {
        result_.broken = received.error().message;
    } else if (!flushed.ok()) {
        result_.broken = flushed.error().message;
    }
}

void LevelRun::take(const Response& response, int64_t arrived_us) {
    const auto found = in_flight_.find(response.request_id());
    if (found == in_flight_.end()) {
        if (response.request_id() == 0 || response.request_id() >= *next_request_id_) {
            result_.broken = "afdd answered request " + std::to_string(response.request_id()) +
                             ", which was never sent";
        }
        return;  // The end of a request that was given up.
    }
    InFlight& request = found->second;
    request.record.end_us = arrived_us;
    const Result<GenerateProgress::Step> step = request.progress.take(response);
    if (!step.ok()) {
        end_request(response.request_id(), Outcome::kFailed, step.error());
        return;
    }
    switch (step.value()) {
        case GenerateProgress::Step::kAccepted:
            request.record.num_prompt_tokens = response.accepted().num_prompt_tokens();
            return;
        case GenerateProgress::Step::kChunk:
            take_chunk(request, response.chunk(), arrived_us);
            return;
        case GenerateProgress::Step::kFinished:
            finish(response.request_id(), request, response.finished());
            return;
    }
}

void LevelRun::take_chunk(InFlight& request, const Chunk& chunk, int64_t arrived_us) {
    if (chunk.num_tokens() == 0) return;
    progress_.num_tokens += chunk.num_tokens();
    request.record.num_tokens += chunk.num_tokens();
    if (request.record.num_chunks++ == 0) {
        request.record.first_token_us = arrived_us;
        request.num_first_tokens = chunk.num_tokens();
    } else {
        request.gaps.emplace_back(arrived_us - request.last_chunk_us, chunk.num_tokens());
    }
    request.last_chunk_us = arrived_us;
}

// Whether a request that ended without an error really did what it was asked.
void LevelRun::finish(uint64_t request_id, InFlight& request, const Finished& finished) {
    const RequestRecord& record = request.record;
    std::string fault;
    if (finished.reason() == CANCELLED) fault = "cancelled, but not by this client";
    if (finished.reason() == LENGTH && record.num_tokens == 0) fault = "finished without a token";
    if (workload_.ignore_eos && record.num_tokens != record.max_tokens) {
        fault = std::to_string(record.num_tokens) + " tokens instead of " +
                std::to_string(record.max_tokens) + " with --ignore-eos";
    }
    if (!fault.empty()) {
        end_request(request_id, Outcome::kFailed, {Code::kDataLoss, fault});
        return;
    }
    record_latencies(request);
    end_request(request_id, Outcome::kOk);
}

void LevelRun::record_latencies(const InFlight& request) {
    const RequestRecord& record = request.record;
    // From the intended start: counted from the sending, an overloaded client would make the daemon
    // look fast.
    result_.e2e_us.record(record.end_us - record.intended_us);
    if (record.num_tokens == 0) return;  // The model ended its text at once.
    result_.ttft_us.record(record.first_token_us - record.intended_us);
    // Tokens of one chunk arrive at once: as a client sees them, the gaps between them are 0. The
    // other histogram shares the chunk's gap out among them.
    result_.itl_us.record(0, request.num_first_tokens - 1);
    result_.itl_spread_us.record(0, request.num_first_tokens - 1);
    for (const auto& [gap_us, num_tokens] : request.gaps) {
        result_.itl_us.record(gap_us);
        result_.itl_us.record(0, num_tokens - 1);
        result_.itl_spread_us.record(gap_us / num_tokens, num_tokens);
    }
}

void LevelRun::end_request(uint64_t request_id, Outcome outcome, afd::Error error) {
    auto node = in_flight_.extract(request_id);
    AFD_ASSERT(!node.empty(), "request %llu", static_cast<unsigned long long>(request_id));
    RequestRecord record = node.mapped().record;
    if (outcome != Outcome::kOk) record.end_us = now_us();
    record.outcome = outcome;
    record.error = std::move(error);
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
        Request request;
        request.set_request_id((*next_request_id_)++);
        request.mutable_cancel()->set_target(request_id);
        // A broken connection needs no cancellation: afdd does it when the stream ends.
        static_cast<void>(connection_.send(request).ok());
        end_request(request_id, outcome, error);
    }
}

}  // namespace afd::client
