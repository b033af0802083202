// SPDX-License-Identifier: Apache-2.0
#pragma once

// MetricsSnapshot: what an instance has counted, read at one time, for its exposition. It comes
// from MetricsView (daemon/afdd/metrics_view.h).

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/metrics/hop_times.h"
#include "daemon/metrics/http_metrics.h"
#include "daemon/metrics/request_metrics.h"
#include "daemon/metrics/worker_totals.h"
#include "proto/client.pb.h"

namespace afd::daemon {

struct MetricsSnapshot {
    client::Status status;                     // Its workers give order and number of what follows.
    const RequestMetrics* requests = nullptr;  // Not owned.
    const HttpMetrics* http = nullptr;         // Not owned; null: HTTP is not served.
    std::vector<WorkerCounts> workers;         // Of each worker of the status.
    // Together, of those that a resize has ended.
    WorkerCounts left_ffn_workers;
    WorkerCounts left_attention_workers;
    HopTimes hops;
    std::string model_name;
    uint32_t num_routed_experts = 0;  // Of an MoE layer; the keys behind them are shared experts.
    uint32_t kv_block_tokens = 0;
    uint64_t shared_memory_bytes = 0;  // Of windows, control and metrics segments.
};

}  // namespace afd::daemon
