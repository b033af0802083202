// SPDX-License-Identifier: Apache-2.0
#pragma once

// The scenario of a mla_prolog_v3 request: which modes go together, and what each of them needs,
// allows or has no use for. A failure goes to `check`, made with the request. Internal to ops/.

#include "ops/operators/mla_v3/mla_prolog_v3_request.h"
#include "ops/record/operator_check.h"

namespace afd::ops {

// The three quantisation modes; they are judged hereby.
void check_scenario(const MlaPrologV3Request& request, OperatorCheck& check);

// Presence and dtypes of tensors, and attributes that a query without low rank cannot have.
void check_uses(const MlaPrologV3Request& request, OperatorCheck& check);

}  // namespace afd::ops
