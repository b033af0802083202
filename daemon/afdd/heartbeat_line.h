// SPDX-License-Identifier: Apache-2.0
#pragma once

// HeartbeatLine: one line of log for ten seconds of work, as operators watch it:
//
//   run 4 wait 0 | 885 tok/s | TTFT p99 6 ms | attention busy 86 %, bubble 2 % | ffn busy 83 %,
//   bubble 12 % | kv 3 %
//
// Silent when nothing runs and nothing has happened. Pure: from two readings of what is counted.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/metrics/request_metrics.h"
#include "proto/client.pb.h"

namespace afd::daemon {

class HeartbeatLine {
  public:
    static constexpr uint64_t kPeriodMs = 10'000;

    // What has happened since the last call, which was `elapsed_ms` ago; nothing: nothing has, or
    // this is the first call.
    std::optional<std::string> next(const client::Status& status,
                                    const RequestMetrics& requests,
                                    uint64_t elapsed_ms);

  private:
    struct Times {
        uint64_t busy_us = 0;
        uint64_t bubble_us = 0;
        uint64_t total_us = 0;
    };

    // The times of all workers of a role, since the last reading.
    Times since_last(const client::Status& status, const std::string& role) const;
    std::string role_text(const client::Status& status, const std::string& role) const;

    bool has_last_ = false;
    client::Status last_;
    uint64_t last_tokens_ = 0;
    std::vector<uint64_t> last_first_tokens_;  // Counts of the histogram.
};

}  // namespace afd::daemon
