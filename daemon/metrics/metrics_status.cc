// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/metrics_status.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace afd::daemon {
namespace {

constexpr double kNsPerUs = 1000.0;

// Adds a distribution unless it is empty. `per_unit`: values of the histogram in one of `unit`.
void add(const std::string& name,
         const std::string& unit,
         double per_unit,
         const HistogramCounts& counts,
         client::Worker& worker) {
    if (counts.count == 0) return;
    client::Distribution& to = *worker.add_distributions();
    to.set_name(name);
    to.set_unit(unit);
    to.set_count(counts.count);
    to.set_mean(counts.mean() / per_unit);
    to.set_p50(counts.value_at(0.5) / per_unit);
    to.set_p99(counts.value_at(0.99) / per_unit);
    to.set_max(static_cast<double>(counts.largest) / per_unit);
}

void fill_common(const Metrics& metrics, client::Worker& worker) {
    worker.set_num_tokens(metrics.get(Counter::kTokens));
    worker.set_num_rounds(metrics.get(Counter::kRounds));
    worker.set_weight_bytes_left(metrics.get(Counter::kWeightBytesLeft));
    worker.set_busy_us(metrics.busy_ns() / 1000);
    worker.set_bubble_us(metrics.get(Counter::kBubbleNs) / 1000);
    worker.set_idle_us(metrics.get(Counter::kIdleNs) / 1000);
    for (uint8_t kind = 0; kind < kTraceKinds; ++kind) {
        const auto stage = static_cast<TraceKind>(kind);
        const uint64_t time_us = metrics.get(phase_counter(stage)) / 1000;
        if (time_us == 0) continue;
        client::StageTime& time = *worker.add_stages();
        time.set_name(std::string(trace_kind_name(stage)));
        time.set_time_us(time_us);
    }
}

// A status of a thousand workers has to fit into a frame, so of many ranks only the slowest have a
// distribution of their own.
void add_peer_waits(const Metrics& metrics, uint32_t num_ranks, client::Worker& worker) {
    struct Wait {
        uint32_t rank;
        HistogramCounts counts;
    };
    std::vector<Wait> waits;
    for (uint32_t rank = 0; rank < num_ranks; ++rank) {
        waits.push_back({rank, metrics.peer_wait(rank).read()});
    }
    if (waits.size() > kPeerWaitsMax) {
        HistogramCounts all;
        for (const Wait& wait : waits) all.add(wait.counts);
        add("wait for all ffn", "us", kNsPerUs, all, worker);
        const auto end = waits.begin() + kPeerWaitsMax;
        std::ranges::nth_element(
            waits, end, std::greater(), [](const Wait& wait) { return wait.counts.mean(); });
        waits.erase(end, waits.end());
        std::ranges::sort(waits, {}, &Wait::rank);
    }
    for (const Wait& wait : waits) {
        add(fmt::format("wait for ffn {}", wait.rank), "us", kNsPerUs, wait.counts, worker);
    }
}

}  // namespace

void fill_attention_metrics(const Metrics& metrics, uint32_t num_ranks, client::Worker& worker) {
    fill_common(metrics, worker);
    worker.set_num_positions(metrics.get(Counter::kRows));
    worker.set_num_two_phase_rounds(metrics.get(Counter::kTwoPhaseRounds));
    worker.set_num_two_phase_fallbacks(metrics.get(Counter::kTwoPhaseFallbacks));
    worker.set_kv_tokens_held(metrics.get(Counter::kKvTokens));
    worker.set_kv_windowed_tokens_used(metrics.get(Counter::kKvWindowedTokens));
    worker.set_num_in_flight(static_cast<uint32_t>(metrics.get(Counter::kInFlightNow)));
    worker.set_num_timeouts(metrics.get(Counter::kTimeouts));
    worker.set_num_prefix_queries(metrics.get(Counter::kPrefixQueries));
    worker.set_num_prefix_hits(metrics.get(Counter::kPrefixHits));
    add_peer_waits(metrics, num_ranks, worker);
    add("step", "us", kNsPerUs, metrics.histogram(Histogram::kStepNs).read(), worker);
    add("micro-batches in flight", "", 1.0, metrics.histogram(Histogram::kInFlight).read(), worker);
}

void fill_ffn_metrics(const Metrics& metrics,
                      const std::set<uint32_t>& experts,
                      uint32_t num_routed,
                      client::Worker& worker) {
    fill_common(metrics, worker);
    worker.set_num_bad_choices(metrics.get(Counter::kBadChoices));
    worker.set_num_overruled(metrics.get(Counter::kOverruled));
    add("descriptor age", "us", kNsPerUs, metrics.histogram(Histogram::kAgeNs).read(), worker);
    add("pass", "us", kNsPerUs, metrics.histogram(Histogram::kPassNs).read(), worker);
    add("rows of a pass", "", 1.0, metrics.histogram(Histogram::kPassRows).read(), worker);
    add("sessions of a pass",
        "",
        1.0,
        metrics.histogram(Histogram::kPassDescriptors).read(),
        worker);
    add("descriptors ready", "", 1.0, metrics.histogram(Histogram::kReady).read(), worker);
    for (const uint32_t expert : experts) {
        client::ExpertRows& rows = *worker.add_expert_rows();
        rows.set_expert(expert);
        rows.set_is_shared(expert >= num_routed);
        rows.set_rows(metrics.expert_rows(expert));
    }
}

}  // namespace afd::daemon
