// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference AttentionWorkerCombine: one output element at a time.

#include "ops/operators/attention_worker_combine.h"

namespace afd::ops::reference {

// As ops::attention_worker_combine, with the same errors and the same bits.
Result<> attention_worker_combine(const AttentionWorkerCombineRequest& request);

}  // namespace afd::ops::reference
