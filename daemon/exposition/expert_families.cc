// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "daemon/exposition/families.h"

namespace afd::daemon {

void add_expert_families(const MetricsSnapshot& snapshot, FamilyList& families) {
    std::vector<uint64_t> rows = snapshot.left_ffn_workers.expert_rows;
    for (const WorkerCounts& counts : snapshot.workers) {
        rows.resize(std::max(rows.size(), counts.expert_rows.size()));
        for (size_t expert = 0; expert < counts.expert_rows.size(); ++expert) {
            rows[expert] += counts.expert_rows[expert];
        }
    }
    families.counter("afd_expert_rows_total",
                     "Rows of each expert, in all MoE layers and at all FFN workers; shared: those "
                     "of the shared experts");
    uint64_t shared = 0;
    uint64_t sum = 0;
    uint64_t most = 0;
    for (size_t expert = 0; expert < rows.size(); ++expert) {
        if (expert >= snapshot.num_routed_experts) {
            shared += rows[expert];
            continue;
        }
        families.value({{"expert", std::to_string(expert)}}, static_cast<double>(rows[expert]));
        sum += rows[expert];
        most = std::max(most, rows[expert]);
    }
    if (rows.size() > snapshot.num_routed_experts) {
        families.value({{"expert", "shared"}}, static_cast<double>(shared));
    }
    families.gauge("afd_expert_imbalance_ratio",
                   "Rows of the busiest routed expert over their mean, since the start; 1: even");
    const double mean =
        static_cast<double>(sum) / static_cast<double>(std::max(1U, snapshot.num_routed_experts));
    if (sum > 0) families.value(static_cast<double>(most) / mean);
}

}  // namespace afd::daemon
