// SPDX-License-Identifier: Apache-2.0
#pragma once

// KillReport: what random kills came to, over all instances that they hit.

#include <cstdint>
#include <string>
#include <vector>

namespace afd::test {

// Kills of one role, or of both at once; or cuts of a wire.
struct KillTimes {
    // From a kill until the last of the requests that it held up went on, for each kill that held
    // up any.
    std::vector<double> progress_ms;
    // From a kill until the successor was ready.
    std::vector<double> restart_ms;
};

struct KillReport {
    uint64_t num_kills = 0;
    uint64_t num_cuts = 0;      // Of the wire to another host.
    uint64_t num_requests = 0;  // Ended.
    uint64_t num_lost = 0;      // Ended with an error, or not at all.
    uint64_t num_doubled = 0;   // More tokens than there are, or answers behind an end.
    uint64_t num_changed = 0;   // Other tokens or log probabilities.
    KillTimes ffn;
    KillTimes attention;
    KillTimes both;
    KillTimes host;  // All workers of another host, some times with its afdd.
    KillTimes wire;
    // Of requests that a kill did not concern: those of the other attention worker.
    std::vector<double> others_gap_ms;
    // What afdd had more of at the end than before the first kill, and what was left behind it; the
    // most of any instance.
    int64_t num_descriptors_more = 0;
    int64_t kib_more = 0;
    uint64_t num_segments_left = 0;

    void add(const KillReport& other);
    // Several lines, as docs/reliability.md shows them: times in ms as median / 99th percentile /
    // longest.
    std::string text() const;
};

}  // namespace afd::test
