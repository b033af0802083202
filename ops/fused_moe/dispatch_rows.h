// SPDX-License-Identifier: Apache-2.0
#pragma once

// DispatchRows: the rows of a micro-batch as they are sent: the caller's own, or quantised to int8
// once for every token, however many experts it goes to.

#include <cstddef>
#include <cstdint>

#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/capability.h"
#include "ops/fused_moe/stage_profile.h"
#include "ops/parallel.h"
#include "ops/workspace.h"

namespace afd::ops {

class DispatchRows {
  public:
    // Takes room for `num_tokens` rows, if the configuration quantises.
    DispatchRows(const FusedMoeConfig& config, size_t num_tokens, WorkspaceCursor& cursor);
    static Capacity memory(const FusedMoeConfig& config, size_t num_tokens);

    // The result lives until the next call, and no longer than x.
    ActivationRows prepare(Rows<const Bf16> x, Parallel& parallel, StageProfile* profile);

  private:
    int8_t* values_ = nullptr;  // [num_tokens, hidden], or null
    float* scales_ = nullptr;   // [num_tokens]
};

}  // namespace afd::ops
