// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseTables: a placement as one session uses it, in the form of the operators of
// ops/two_phase: of each layer [1, num_experts, 1, 2] int32, the pair (rank, local id) of the
// replica that ExpertPlacement::choose() gives to the session.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/tensor/tensor_view.h"
#include "schedule/dispatch/expert_placement.h"

namespace afd::daemon {

class TwoPhaseTables {
  public:
    TwoPhaseTables(const schedule::ExpertPlacement& placement, uint32_t session);

    ops::ConstTensorView of(uint32_t layer) const;
    // The layer with the most experts, routed and shared, and how many these are.
    uint32_t widest_layer() const { return widest_layer_; }
    size_t num_experts_max() const { return num_experts(widest_layer_); }

  private:
    size_t num_experts(uint32_t layer) const { return tables_[layer].size() / 2; }

    uint32_t widest_layer_ = 0;
    std::vector<std::vector<int32_t>> tables_;  // Of each layer.
};

}  // namespace afd::daemon
