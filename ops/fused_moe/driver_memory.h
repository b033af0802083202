// SPDX-License-Identifier: Apache-2.0
#pragma once

// DriverMemory: what FusedMoe reserves beside its parts; compose() reserves by it, and moe_plan.h
// adds it up.

#include "ops/fused_moe/amounts.h"
#include "ops/fused_moe/capability.h"
#include "ops/fused_moe/experts.h"
#include "ops/fused_moe/row_bounds.h"

namespace afd::ops {

struct DriverMemory {
    RowBounds bounds;
    size_t chunk_tokens = 0;   // That the experts take at once.
    size_t shared_tokens = 0;  // That the shared stage takes at once.
    // What becomes of its rows: int8 ones are what experts with int8 weights make of them anyway.
    RowDtype shared_dtype = RowDtype::kBf16;
    Capacity workspace13;  // Shared by all chunks, and by the shared stage.
    Capacity workspace2;
    Capacity output;       // Of each batch: the experts' rows.
    Capacity shared_rows;  // Of each batch: those of the shared stage.
    Capacity weighted;     // Of each batch: its input with the routing weights on it.
    Capacity ids;          // Of each batch: the calls' ids in the other dtype.
    Capacity tables;       // Once.

    Capacity total() const;
};

// `shared`: the shared stage, or null. REQUIRES: the parts passed check_composition().
DriverMemory driver_memory(const PrepareFinalizeCapability& record,
                           const Experts& experts,
                           const FusedMoeConfig& config,
                           const Experts* shared);

}  // namespace afd::ops
