// SPDX-License-Identifier: Apache-2.0
#pragma once

// The families by topic, each added whole. docs/metrics.md lists them as they come here.

#include "daemon/exposition/family_list.h"
#include "daemon/exposition/metrics_snapshot.h"

namespace afd::daemon {

// What clients of an instance see: vLLM's set.
void add_request_families(const MetricsSnapshot& snapshot, FamilyList& families);
// Requests of HTTP by endpoint; without values where HTTP is not served.
void add_http_families(const MetricsSnapshot& snapshot, FamilyList& families);
// The state of the instance and of its workers' processes.
void add_instance_families(const MetricsSnapshot& snapshot, FamilyList& families);
// What the workers' data threads do, and what lies between them.
void add_worker_families(const MetricsSnapshot& snapshot, FamilyList& families);
// Rows by expert.
void add_expert_families(const MetricsSnapshot& snapshot, FamilyList& families);
// afdd's own process, by the names that every Prometheus client has for it.
void add_process_families(FamilyList& families);

// role and worker, of a worker of the status; of one of another host, host, too.
MetricLabels worker_labels(const client::Worker& worker);

}  // namespace afd::daemon
