// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerTotals: what all processes of one worker slot have counted together. A successor starts its
// metrics segment at zero (metrics.h); whoever watches a counter from outside must never see it
// fall.
//
// The counts of a process are in its segment as long as it serves, and are added up here when it is
// gone. Between its end and the moment in which its successor serves, the segment has the old
// values, then zeros, and is not looked at. Pure reading; on afdd's loop.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/metrics/metrics.h"

namespace afd::daemon {

// Sums, word by word as the segment has them.
struct WorkerCounts {
    std::array<uint64_t, static_cast<size_t>(Counter::kCount)> counters{};
    std::array<HistogramCounts, static_cast<size_t>(Histogram::kCount)> histograms{};
    std::vector<HistogramCounts> peer_waits;  // Attention: by rank; what is not there is 0.
    std::vector<uint64_t> expert_rows;        // FFN: by logical expert.

    uint64_t counter(Counter counter) const { return counters[static_cast<size_t>(counter)]; }
    const HistogramCounts& histogram(Histogram histogram) const {
        return histograms[static_cast<size_t>(histogram)];
    }
    void add(const WorkerCounts& other);
};

class WorkerTotals {
  public:
    // What the lanes of the segment are: `num_peers` histograms or `num_experts` words; one of the
    // two is 0. REQUIRES: the segment outlives the object.
    WorkerTotals(const Metrics& metrics, uint32_t num_peers, uint32_t num_experts);

    // A process serves: it has set its segment to zero before.
    void begin() { is_serving_ = true; }
    // It is gone (R8): nobody writes the segment any more. Nothing happens if it never served.
    void end();
    // Adds the counts of processes that had the worker's name and other segments.
    void add_earlier(const WorkerCounts& counts) { gone_.add(counts); }

    WorkerCounts read() const;

  private:
    WorkerCounts read_segment() const;

    Metrics metrics_;
    const uint32_t num_peers_;
    const uint32_t num_experts_;
    WorkerCounts gone_;  // Of processes that are gone.
    bool is_serving_ = false;
};

}  // namespace afd::daemon
