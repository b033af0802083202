// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference MoeInitRoutingV3: a list of slots, sorted by the standard library, written row by row.

#include "ops/operators/moe_init_routing.h"

namespace afd::ops::reference {

// As ops::moe_init_routing_v3, with the same errors and the same bits.
Result<> moe_init_routing_v3(const MoeInitRoutingV3Request& request);

}  // namespace afd::ops::reference
