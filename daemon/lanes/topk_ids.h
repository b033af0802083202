// SPDX-License-Identifier: Apache-2.0
#pragma once

// The experts that a router on this side has chosen, before any row leaves for them.

#include <cstdint>

#include "ops/fused_moe/activations.h"
#include "proto/status.h"

namespace afd::daemon {

// `num_experts`: routed ones of the layer. REQUIRES: input.topk_ids.
// Errors: kInternal, an id outside them.
Result<> check_topk_ids(const ops::MoeInput& input, uint32_t num_experts);

}  // namespace afd::daemon
