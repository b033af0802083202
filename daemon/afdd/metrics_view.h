// SPDX-License-Identifier: Apache-2.0
#pragma once

// MetricsView: what the instance counts, for a Prometheus server: the counts of all workers over
// the lives of their processes, and what afdd knows beside them. On afdd's loop thread.

#include <memory>
#include <string>
#include <vector>

#include "daemon/afdd/instance_setup.h"
#include "daemon/config/config.h"
#include "daemon/metrics/hop_times.h"
#include "daemon/metrics/http_metrics.h"
#include "daemon/metrics/request_metrics.h"
#include "daemon/metrics/worker_totals.h"
#include "proto/client.pb.h"
#include "proto/control.pb.h"

namespace afd::daemon {

class MetricsView {
  public:
    // REQUIRES: both outlive it; the steps of `setup` were taken.
    MetricsView(const Config& config, const InstanceSetup& setup);

    // A worker's process serves, or is gone.
    void begin(control::Role role, uint32_t index) { totals_of(role, index).begin(); }
    void end(control::Role role, uint32_t index) { totals_of(role, index).end(); }

    // GatewayHost::metrics_text(). `http`: null where HTTP is not served.
    std::string text(const client::Status& status,
                     const RequestMetrics& requests,
                     const HopTimes& hops,
                     const HttpMetrics* http) const;
    // Of one worker of the status.
    WorkerCounts counts(const client::Worker& worker) const;

  private:
    WorkerTotals& totals_of(control::Role role, uint32_t index) {
        return role == control::FFN ? ffn_[index] : attention_[index];
    }

    const Config& config_;
    const InstanceSetup& setup_;
    std::vector<WorkerTotals> attention_;
    std::vector<WorkerTotals> ffn_;
};

}  // namespace afd::daemon
