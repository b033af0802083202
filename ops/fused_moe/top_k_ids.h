// SPDX-License-Identifier: Apache-2.0
#pragma once

// TopKIds: a call's expert ids in the dtype that a PrepareFinalize takes, where the calls bring the
// other one. The driver itself goes by int32 ids, so these are there in any case.
//
// int64 ids outside int32 become ids outside every placement: negative ones -1, others 2147483647.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/amounts.h"
#include "ops/fused_moe/capability.h"

namespace afd::ops {

class TopKIds {
  public:
    // Bytes for the ids of one call.
    static Capacity memory(const FusedMoeConfig& config, const PrepareFinalizeCapability& record);

    // Sets those of topk_ids and topk_ids_int64 that are missing, in `memory`, which stays as long
    // as the input, and topk_ids_given. REQUIRES: memory() bytes, aligned to 8; the ids are in the
    // configured dtype.
    static void complete(const FusedMoeConfig& config,
                         const PrepareFinalizeCapability& record,
                         std::span<std::byte> memory,
                         MoeInput& input);
};

}  // namespace afd::ops
