// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the composed layers of an attention worker have in common, whatever their lanes: the
// framework's configuration, and the record of the experts.

#include "daemon/worker/worker_setup.h"
#include "ops/fused_moe/capability.h"

namespace afd::daemon {

// The Experts part that the instance runs, here or in the FFN workers.
const ops::ExpertsCapability& experts_record(const model::ModelConfig& model);

// One call of a micro-batch, M of them in flight.
ops::FusedMoeConfig moe_config(const WorkerSetup& setup);

}  // namespace afd::daemon
