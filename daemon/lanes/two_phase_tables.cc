// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/two_phase_tables.h"

#include <algorithm>

namespace afd::daemon {

TwoPhaseTables::TwoPhaseTables(const schedule::ExpertPlacement& placement) {
    for (uint32_t layer = 0; layer < placement.num_layers(); ++layer) {
        if (placement.num_experts(layer) > placement.num_experts(widest_layer_)) {
            widest_layer_ = layer;
        }
        for (uint32_t expert = 0; expert < placement.num_experts(layer); ++expert) {
            // One width for all layers: the operator's table is rectangular, and rank −1 ends a
            // list.
            num_replicas_ = std::max(num_replicas_, placement.replicas(layer, expert).size());
        }
    }
    for (uint32_t layer = 0; layer < placement.num_layers(); ++layer) {
        const size_t num_experts = placement.num_experts(layer);
        std::vector<int32_t>& table = tables_.emplace_back(num_experts * num_replicas_ * 2, -1);
        for (uint32_t expert = 0; expert < num_experts; ++expert) {
            int32_t* pair = &table[expert * num_replicas_ * 2];
            for (const schedule::ExpertReplica& replica : placement.replicas(layer, expert)) {
                *pair++ = static_cast<int32_t>(replica.rank);
                *pair++ = replica.local_id;
            }
        }
    }
}

ops::ConstTensorView TwoPhaseTables::of(uint32_t layer) const {
    return ops::make_tensor<const void>(
        tables_[layer].data(), ops::DType::kInt32, {1, num_experts(layer), num_replicas_, 2});
}

}  // namespace afd::daemon
