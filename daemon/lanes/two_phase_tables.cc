// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/two_phase_tables.h"

namespace afd::daemon {

TwoPhaseTables::TwoPhaseTables(const schedule::ExpertPlacement& placement, uint32_t session) {
    for (uint32_t layer = 0; layer < placement.num_layers(); ++layer) {
        if (placement.num_experts(layer) > placement.num_experts(widest_layer_)) {
            widest_layer_ = layer;
        }
        std::vector<int32_t>& table = tables_.emplace_back();
        for (uint32_t expert = 0; expert < placement.num_experts(layer); ++expert) {
            // Only the one that the session uses: the choice among replicas may differ from expert
            // to expert, and the operators' own knows the session alone.
            const schedule::ExpertReplica replica = placement.choose(layer, expert, session);
            table.push_back(static_cast<int32_t>(replica.rank));
            table.push_back(replica.local_id);
        }
    }
}

ops::ConstTensorView TwoPhaseTables::of(uint32_t layer) const {
    return ops::make_tensor<const void>(
        tables_[layer].data(), ops::DType::kInt32, {1, num_experts(layer), 1, 2});
}

}  // namespace afd::daemon
