// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/hop_sampler.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace afd::daemon {
namespace {

constexpr uint64_t kPeriodMs = 1000;
// At 80,000 events a second of one worker, no more than its ring holds.
constexpr uint64_t kSampleMs = 20;

using Round = std::tuple<uint16_t, uint8_t, int32_t>;  // Session, micro-batch, round.

Round round_of(const TraceEvent& event) {
    return {event.session, event.micro_batch, event.round};
}

uint64_t end_of(const TraceEvent& event) {
    return event.start_ns + event.duration_ns;
}

// An event may end after what it announces was seen.
uint64_t since(uint64_t from_ns, uint64_t to_ns) {
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

}  // namespace

void add_hops(const std::vector<TraceEvent>& attention,
              const std::vector<TraceEvent>& ffn,
              HopTimes& times) {
    std::map<Round, uint64_t> published;
    for (const TraceEvent& event : attention) {
        if (event.kind == TraceKind::kDispatch) published[round_of(event)] = end_of(event);
    }
    std::map<Round, uint64_t> returned;  // By the last FFN worker of the round.
    for (const TraceEvent& event : ffn) {
        const auto found = published.find(round_of(event));
        if (event.round == 0 || found == published.end()) continue;
        if (event.kind == TraceKind::kGather)
            times.a2f.record(since(found->second, event.start_ns));
        if (event.kind != TraceKind::kReturn) continue;
        uint64_t& last = returned[round_of(event)];
        last = std::max(last, end_of(event));
    }
    for (const TraceEvent& event : attention) {
        if (event.kind != TraceKind::kWait) continue;
        const auto found = returned.find(round_of(event));
        if (found != returned.end()) times.f2a.record(since(found->second, end_of(event)));
    }
}

HopSampler::HopSampler(EventLoop& loop, const std::vector<TraceSource>& sources)
    : loop_(loop), timer_(loop, [this] { on_timer(); }) {
    set_sources(sources);
}

void HopSampler::set_sources(const std::vector<TraceSource>& sources) {
    stop_sample();
    is_running_ = false;
    timer_.stop();
    sources_.clear();
    for (const TraceSource& source : sources) {
        sources_.push_back({source.ring, source.role == "attention", 0});
    }
    // Colocated: there are no hops.
    const bool has_ffn = std::any_of(sources_.begin(), sources_.end(), [](const Source& source) {
        return !source.is_attention;
    });
    if (!has_ffn) sources_.clear();
}

void HopSampler::run_while(bool is_running) {
    if (sources_.empty() || is_running == is_running_) return;
    is_running_ = is_running;
    // A sample that has begun goes on to its end.
    if (is_sampling_) return;
    if (is_running) {
        start_timer();
    } else {
        timer_.stop();
    }
}

void HopSampler::start_timer() {
    const uint64_t now_ms = loop_.now_ms();
    timer_.start(next_ms_ > now_ms ? next_ms_ - now_ms : 0);
}

void HopSampler::pause() {
    is_sampling_ = false;
    is_running_ = false;
    timer_.stop();
}

void HopSampler::on_timer() {
    if (is_sampling_) {
        end_sample();
    } else {
        begin_sample();
    }
}

void HopSampler::begin_sample() {
    for (Source& source : sources_) {
        source.next = source.ring.num_ended();
        source.ring.turn(true);
    }
    is_sampling_ = true;
    next_ms_ = loop_.now_ms() + kPeriodMs;
    timer_.start(kSampleMs);
}

void HopSampler::end_sample() {
    attention_.clear();
    ffn_.clear();
    for (Source& source : sources_) {
        if (source.is_attention) source.ring.take(source.next, attention_);
    }
    for (Source& source : sources_) {
        if (!source.is_attention) source.ring.take(source.next, ffn_);
    }
    stop_sample();
    add_hops(attention_, ffn_, times_);
    if (is_running_) start_timer();
}

void HopSampler::stop_sample() {
    if (!is_sampling_) return;
    is_sampling_ = false;
    for (Source& source : sources_) source.ring.turn(false);
}

}  // namespace afd::daemon
