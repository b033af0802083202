// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference MoeFinalizeRouting: one output element at a time.

#include "ops/operators/moe_finalize_routing.h"

namespace afd::ops::reference {

// As ops::moe_finalize_routing, with the same errors and the same bits.
Result<> moe_finalize_routing(const MoeFinalizeRoutingRequest& request);

}  // namespace afd::ops::reference
