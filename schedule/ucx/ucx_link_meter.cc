// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_link_meter.h"

#include <algorithm>

namespace afd::schedule {
namespace {

constexpr uint64_t kSpanNs = 5'000'000'000;
constexpr uint64_t kFirstProbesNs = 1'000'000'000;
constexpr uint64_t kLaterProbesNs = 60'000'000'000;
constexpr uint64_t kNsPerSecond = 1'000'000'000;
// Of a probe's time what its bytes must have taken at least, as one over this, to be told.
constexpr uint64_t kShareOfBytes = 16;
constexpr uint64_t kEarlyProbes = 10;

}  // namespace

UcxBeatTimes UcxLinkMeter::beat(uint64_t now_ns) const {
    return {now_ns, heard_sent_ns_, now_ns - heard_ns_};
}

void UcxLinkMeter::on_beat(const UcxBeatTimes& times, uint64_t now_ns) {
    heard_sent_ns_ = times.sent_ns;
    heard_ns_ = now_ns;
    if (times.answers_ns == 0 || times.answers_ns > now_ns) return;
    const uint64_t since_ns = now_ns - times.answers_ns;
    if (times.held_ns >= since_ns) return;
    const uint64_t found_ns = since_ns - times.held_ns;
    if (now_ns - span_began_ns_ > kSpanNs) {
        last_shortest_ns_ = shortest_ns_;
        shortest_ns_ = 0;
        span_began_ns_ = now_ns;
    }
    shortest_ns_ = shortest_ns_ == 0 ? found_ns : std::min(shortest_ns_, found_ns);
}

uint64_t UcxLinkMeter::round_trip_ns() const {
    if (shortest_ns_ == 0 || last_shortest_ns_ == 0) return shortest_ns_ + last_shortest_ns_;
    return std::min(shortest_ns_, last_shortest_ns_);
}

bool UcxLinkMeter::is_probing(uint64_t now_ns) const {
    return probe_sent_ns_ != 0 && now_ns - probe_sent_ns_ < kAnswerNs;
}

bool UcxLinkMeter::wants_probe(uint64_t now_ns) const {
    return !is_probing(now_ns) && round_trip_ns() != 0 && now_ns >= next_probe_ns_;
}

void UcxLinkMeter::on_probe(uint64_t now_ns) {
    probe_sent_ns_ = now_ns;
    ++num_probes_;
    const bool is_early = num_told_ + 1 < bytes_per_s_.size() && num_probes_ < kEarlyProbes;
    next_probe_ns_ = now_ns + (is_early ? kFirstProbesNs : kLaterProbesNs);
}

void UcxLinkMeter::on_answer(uint64_t sent_ns, uint64_t now_ns) {
    if (!is_probing(now_ns) || sent_ns != probe_sent_ns_) return;
    const uint64_t since_ns = now_ns - probe_sent_ns_;
    probe_sent_ns_ = 0;
    const uint64_t bytes_ns = since_ns - std::min(round_trip_ns(), since_ns);
    const bool says_something = bytes_ns > 0 && bytes_ns >= since_ns / kShareOfBytes;
    bytes_per_s_[num_probes_ % bytes_per_s_.size()] =
        says_something ? kProbeBytes * kNsPerSecond / bytes_ns : 0;
    if (says_something) ++num_told_;
}

void UcxLinkMeter::on_closed() {
    probe_sent_ns_ = 0;
    heard_sent_ns_ = 0;
}

LinkView UcxLinkMeter::view() const {
    return {.latency_ns = round_trip_ns() / 2,
            .bytes_per_s = *std::max_element(bytes_per_s_.begin(), bytes_per_s_.end()),
            .bytes_sent = bytes_sent_,
            .bytes_received = bytes_received_};
}

}  // namespace afd::schedule
