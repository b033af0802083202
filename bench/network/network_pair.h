// SPDX-License-Identifier: Apache-2.0
#pragma once

// A session and a rank as two processes, over UCX or over windows that both map.

#include <cstdint>
#include <optional>

#include "schedule/ucx/ucx_worker.h"

namespace afd::bench {

struct NetworkLoad {
    uint32_t num_lanes = 1;      // Micro-batches in flight at once.
    uint32_t rows = 1;           // Rows of a publication.
    uint32_t row_bytes = 14336;  // 7168 values of bf16.
    bool returns_rows = true;    // Or only the acknowledgement comes back.
    uint32_t num_rounds = 2000;  // Of each lane; a tenth more goes before.
    uint32_t spin_us = 1000;     // Of both data threads, as ucx_perftest, which never sleeps.
};

struct NetworkFigures {
    double round_trip_us = 0;  // Median, from the first row put to the acknowledgement seen.
    double gbytes_per_s = 0;   // Of rows sent, over the time of all rounds.
};

// Without `ucx`: windows in memory that both processes map. Forks; call it before anything in this
// process uses UCX. Errors: kUnavailable: a process of the two failed.
Result<NetworkFigures> measure_pair(const NetworkLoad& load,
                                    const std::optional<schedule::UcxConfig>& ucx);

}  // namespace afd::bench
