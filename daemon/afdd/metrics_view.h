// SPDX-License-Identifier: Apache-2.0
#pragma once

// MetricsView: what the instance counts, for a Prometheus server: the counts of all workers over
// the lives of their processes, and what afdd knows beside them. On afdd's loop thread.
//
// Each layout has one. A resize goes on counting where the one before has ended (follow()), so that
// nobody sees a counter fall.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/instance/instance_layout.h"
#include "daemon/metrics/hop_times.h"
#include "daemon/metrics/http_metrics.h"
#include "daemon/metrics/request_metrics.h"
#include "daemon/metrics/worker_totals.h"
#include "proto/client.pb.h"
#include "proto/control.pb.h"

namespace afd::daemon {

class MetricsView {
  public:
    // REQUIRES: `layout` outlives it; its steps were taken.
    explicit MetricsView(const InstanceLayout& layout);

    // A worker's process serves, or is gone.
    void begin(control::Role role, uint32_t index) { of(role).workers[index].begin(); }
    void end(control::Role role, uint32_t index) { of(role).workers[index].end(); }

    // Adds what was counted before. REQUIRES: no process of that layout serves any more.
    void follow(const MetricsView& before);

    // ServedInstance::metrics_text(). `http`: null where HTTP is not served.
    std::string text(const client::Status& status,
                     const RequestMetrics& requests,
                     const HopTimes& hops,
                     const HttpMetrics* http) const;
    // Of one worker of the status.
    WorkerCounts counts(const client::Worker& worker) const;

  private:
    struct Totals {
        void follow(const Totals& before);

        std::vector<WorkerTotals> workers;
        std::map<uint32_t, WorkerCounts> left;  // Of workers that only an earlier layout had.
    };

    Totals& of(control::Role role) { return role == control::FFN ? ffn_ : attention_; }

    const InstanceLayout& layout_;
    Totals attention_;
    Totals ffn_;
};

}  // namespace afd::daemon
