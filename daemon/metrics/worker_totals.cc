// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics/worker_totals.h"

#include <algorithm>

namespace afd::daemon {
namespace {

// Those that go down, too, are of the process that serves.
bool is_level(size_t counter) {
    return counter == static_cast<size_t>(Counter::kSequences) ||
           counter == static_cast<size_t>(Counter::kKvTokens) ||
           counter == static_cast<size_t>(Counter::kKvWindowedTokens) ||
           counter == static_cast<size_t>(Counter::kInFlightNow) ||
           counter == static_cast<size_t>(Counter::kWeightBytesLeft);
}

}  // namespace

void WorkerCounts::add(const WorkerCounts& other) {
    for (size_t i = 0; i < counters.size(); ++i) counters[i] += other.counters[i];
    for (size_t i = 0; i < histograms.size(); ++i) histograms[i].add(other.histograms[i]);
    peer_waits.resize(std::max(peer_waits.size(), other.peer_waits.size()));
    expert_rows.resize(std::max(expert_rows.size(), other.expert_rows.size()));
    for (size_t i = 0; i < other.peer_waits.size(); ++i) peer_waits[i].add(other.peer_waits[i]);
    for (size_t i = 0; i < other.expert_rows.size(); ++i) expert_rows[i] += other.expert_rows[i];
}

WorkerTotals::WorkerTotals(const Metrics& metrics, uint32_t num_peers, uint32_t num_experts)
    : metrics_(metrics), num_peers_(num_peers), num_experts_(num_experts) {
    gone_.peer_waits.resize(num_peers);
    gone_.expert_rows.resize(num_experts);
}

void WorkerTotals::end() {
    if (!is_serving_) return;
    WorkerCounts last = read_segment();
    for (size_t i = 0; i < last.counters.size(); ++i) {
        if (is_level(i)) last.counters[i] = 0;
    }
    gone_.add(last);
    is_serving_ = false;
}

WorkerCounts WorkerTotals::read() const {
    WorkerCounts all = gone_;
    if (is_serving_) all.add(read_segment());
    return all;
}

WorkerCounts WorkerTotals::read_segment() const {
    WorkerCounts counts;
    for (size_t i = 0; i < counts.counters.size(); ++i) {
        counts.counters[i] = metrics_.get(static_cast<Counter>(i));
    }
    for (size_t i = 0; i < counts.histograms.size(); ++i) {
        counts.histograms[i] = metrics_.histogram(static_cast<Histogram>(i)).read();
    }
    for (uint32_t rank = 0; rank < num_peers_; ++rank) {
        counts.peer_waits.push_back(metrics_.peer_wait(rank).read());
    }
    for (size_t expert = 0; expert < num_experts_; ++expert) {
        counts.expert_rows.push_back(metrics_.expert_rows(expert));
    }
    return counts;
}

}  // namespace afd::daemon
