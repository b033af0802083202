// SPDX-License-Identifier: Apache-2.0
#include "daemon/exposition/exposition.h"

#include "daemon/exposition/families.h"

namespace afd::daemon {

MetricLabels worker_labels(const client::Worker& worker) {
    MetricLabels labels = {{"role", worker.role()}, {"worker", std::to_string(worker.index())}};
    if (!worker.host().empty()) labels.emplace_back("host", worker.host());
    return labels;
}

std::string exposition_text(const MetricsSnapshot& snapshot, bool vllm_names) {
    FamilyList families(
        {{"model_name", snapshot.model_name}, {"engine", snapshot.status.instance()}});
    add_request_families(snapshot, families);
    add_http_families(snapshot, families);
    add_instance_families(snapshot, families);
    add_worker_families(snapshot, families);
    add_expert_families(snapshot, families);
    add_process_families(families);
    return families.text(vllm_names);
}

}  // namespace afd::daemon
