// SPDX-License-Identifier: Apache-2.0
#pragma once

// FfnWorkerBatching in plain loops: one pass over the slots for each expert key. Allocates.

#include "ops/operators/ffn_worker_batching.h"

namespace afd::ops::reference {

Result<> ffn_worker_batching(const FfnWorkerBatchingRequest& request,
                             FfnWorkerBatchingOutput& output);

}  // namespace afd::ops::reference
