// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/tracer.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

namespace afd::daemon {
namespace {

// A ring holds 4096 events: at 80,000 a second none was lost with this period.
constexpr uint64_t kLookMs = 10;
// Some 20 KiB: a small part of what may be queued.
constexpr size_t kEventsPerMessage = 512;
// What a client has not read so long after the end is counted as lost.
constexpr uint64_t kLastMs = 3000;

void add(const TraceEvent& event, client::TraceEvents& to) {
    client::TraceEvent& out = *to.add_events();
    out.set_name(std::string(trace_kind_name(event.kind)));
    out.set_start_ns(event.start_ns);
    out.set_duration_ns(event.duration_ns);
    out.set_session(event.session);
    out.set_micro_batch(event.micro_batch);
    out.set_layer(event.layer);
    out.set_round(event.round);
    out.set_num_rows(event.num_rows);
}

}  // namespace

Tracer::Tracer(EventLoop& loop,
               std::vector<TraceSource> sources,
               ClientAnswers& answers,
               size_t queued_max,
               std::function<void()> flush)
    : loop_(loop),
      answers_(answers),
      queued_max_(queued_max),
      flush_(std::move(flush)),
      timer_(loop, [this] { look(); }) {
    add_sources(std::move(sources));
    taken_.reserve(kEventsPerMessage);
}

Result<> Tracer::start(ClientSession& client, uint64_t request_id, const client::Trace& wish) {
    if (wish.duration_ms() == 0 || wish.duration_ms() > kDurationMsMax) {
        return Error{
            Code::kInvalidArgument,
            fmt::format(
                "a trace of {} ms: 1 to {} are possible", wish.duration_ms(), kDurationMsMax)};
    }
    if (client_ != nullptr) {
        return Error{Code::kUnavailable,
                     fmt::format("another client is tracing this instance, for {} ms more; try "
                                 "again later",
                                 end_ms_ - std::min(end_ms_, loop_.now_ms()))};
    }
    client_ = &client;
    request_id_ = request_id;
    end_ms_ = loop_.now_ms() + wish.duration_ms();
    is_ending_ = false;
    turn(true);
    timer_.start(kLookMs, kLookMs);
    return {};
}

void Tracer::set_sources(std::vector<TraceSource> sources) {
    if (is_on()) {
        turn(false);
        send_all();
        count_rest();
    }
    workers_.clear();
    add_sources(std::move(sources));
    if (!is_on()) return;
    if (is_ending_) {
        begin_now();
    } else {
        turn(true);
    }
}

void Tracer::add_sources(std::vector<TraceSource> sources) {
    for (TraceSource& source : sources) workers_.push_back({std::move(source)});
}

void Tracer::cancel(const ClientSession& client, uint64_t request_id) {
    if (client_ == &client && request_id_ == request_id) end();
}

void Tracer::forget(const ClientSession& client) {
    if (client_ != &client) return;
    client_ = nullptr;
    timer_.stop();
    turn(false);
}

void Tracer::turn(bool on) {
    if (on) begin_now();
    for (Worker& worker : workers_) worker.source.ring.turn(on);
}

// What the rings still have of an earlier trace is not this one's.
void Tracer::begin_now() {
    for (Worker& worker : workers_) {
        worker.next = worker.source.ring.num_ended();
        worker.num_lost = 0;
    }
}

void Tracer::look() {
    if (is_ending_ || loop_.now_ms() >= end_ms_) {
        end();
    } else if (client_->queued_bytes() == 0) {
        // A client that is slow loses events, which are counted, instead of growing afdd's memory.
        send_all();
    }
    flush_();
}

void Tracer::send_all() {
    for (Worker& worker : workers_) send(worker);
}

void Tracer::send(Worker& worker) {
    // What it does meanwhile is for the next look.
    const uint64_t end = worker.source.ring.num_ended();
    while ((worker.next < end || worker.num_lost > 0) && client_->queued_bytes() < queued_max_) {
        taken_.clear();
        worker.num_lost += worker.source.ring.take(worker.next, taken_, kEventsPerMessage);
        // The worker wrote nonsense: there is nothing to tell.
        if (taken_.empty() && worker.num_lost == 0) return;
        tell(worker, taken_);
    }
}

void Tracer::tell(Worker& worker, std::span<const TraceEvent> part) {
    client::Response response;
    response.set_request_id(request_id_);
    client::TraceEvents& events = *response.mutable_trace_events();
    events.set_role(worker.source.role);
    events.set_index(worker.source.index);
    events.set_num_lost(std::exchange(worker.num_lost, 0));
    for (const TraceEvent& event : part) add(event, events);
    answers_.send(*client_, response);
}

bool Tracer::has_more() const {
    return std::ranges::any_of(workers_, [](const Worker& worker) {
        return worker.next < worker.source.ring.num_ended() || worker.num_lost > 0;
    });
}

// How many did not fit is told in any case: that is short.
void Tracer::count_rest() {
    for (Worker& worker : workers_) {
        taken_.clear();
        worker.num_lost += worker.source.ring.take(worker.next, taken_) + taken_.size();
        if (worker.num_lost > 0) tell(worker, {});
    }
}

// Until all is told; the looks go on meanwhile.
void Tracer::end() {
    if (!std::exchange(is_ending_, true)) {
        turn(false);
        end_ms_ = loop_.now_ms() + kLastMs;
    }
    send_all();
    if (has_more() && loop_.now_ms() < end_ms_) return;
    count_rest();
    timer_.stop();
    answers_.done(*std::exchange(client_, nullptr), request_id_);
}

}  // namespace afd::daemon
