// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseTables: a placement in the form of the operators of ops/two_phase: of each layer
// [1, num_experts, replicas, 2] int32, the pairs (rank, local id), -1 where an expert has fewer
// replicas than the most.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/tensor/tensor_view.h"
#include "schedule/expert_placement.h"

namespace afd::daemon {

class TwoPhaseTables {
  public:
    explicit TwoPhaseTables(const schedule::ExpertPlacement& placement);

    ops::ConstTensorView of(uint32_t layer) const;
    // The layer with the most experts, routed and shared, and how many these are.
    uint32_t widest_layer() const { return widest_layer_; }
    size_t num_experts_max() const { return num_experts(widest_layer_); }

  private:
    size_t num_experts(uint32_t layer) const { return tables_[layer].size() / (num_replicas_ * 2); }

    size_t num_replicas_ = 1;
    uint32_t widest_layer_ = 0;
    std::vector<std::vector<int32_t>> tables_;  // Of each layer.
};

}  // namespace afd::daemon
