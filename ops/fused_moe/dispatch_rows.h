// SPDX-License-Identifier: Apache-2.0
#pragma once

// DispatchRows: the rows of a micro-batch as they are sent: the caller's own, or quantised to int8
// once for every token, however many experts it goes to.

#include <cstdint>
#include <vector>

#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/capability.h"
#include "ops/fused_moe/stage_profile.h"
#include "ops/parallel.h"

namespace afd::ops {

class DispatchRows {
  public:
    // Room for config.max_num_tokens rows, if the configuration quantises.
    explicit DispatchRows(const FusedMoeConfig& config);

    // The result lives until the next call, and no longer than x.
    ActivationRows prepare(Rows<const Bf16> x, Parallel& parallel, StageProfile* profile);

  private:
    std::vector<int8_t> values_;  // [max_num_tokens, hidden], or empty
    std::vector<float> scales_;   // [max_num_tokens]
};

}  // namespace afd::ops
