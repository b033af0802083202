// SPDX-License-Identifier: Apache-2.0
#pragma once

// MoeGatingTopK by plain loops: the specification of ops/operators/moe_gating_top_k.h.

#include "ops/operators/moe_gating_top_k.h"

namespace afd::ops::reference {

// Allocates; scores in double, rounded to fp32, so a fast score may differ by its last bits, and
// where two choices differ by no more, so may the experts.
Result<> moe_gating_top_k(const MoeGatingTopKRequest& request);

}  // namespace afd::ops::reference
