// SPDX-License-Identifier: Apache-2.0
#pragma once

// LinkView: what a session's transport has measured of its way to a rank.

#include <cstdint>

namespace afd::schedule {

struct LinkView {
    bool is_open = false;
    // The rank is of the same host, and messages go through memory.
    bool is_near = false;
    // One way, as messages of the transport meet it: half of the shortest round trip of the last
    // 5 to 10 s. 0: not measured yet.
    uint64_t latency_ns = 0;
    // Of the last three probes the fastest. 0: not measured yet.
    uint64_t bytes_per_s = 0;
    // Descriptors and results since the process started, with what was sent again.
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
};

}  // namespace afd::schedule
