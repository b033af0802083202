// SPDX-License-Identifier: Apache-2.0
#pragma once

// RowBounds: for how many rows a composition reserves memory, and how many tokens of a call fit.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/fused_moe/amounts.h"
#include "ops/fused_moe/capability.h"

namespace afd::ops {

struct RowBounds {
    size_t num_batches = 0;  // Calls whose rows are held at a time.
    size_t num_tokens = 0;   // Of one dispatch, at most.
    Capacity places;         // Batched: of each expert.
};

// With row_fraction 1 the worst case: every micro-batch in flight, all its tokens at one expert.
// Below 1, with kBackpressure fewer batches; otherwise fewer places of an expert (Batched), or
// fewer tokens of a dispatch.
RowBounds row_bounds(const PrepareFinalizeCapability& record, const FusedMoeConfig& config);

// Tokens from `first` on that one dispatch takes, all of them or as many as fit. Batched: each
// expert gets a token's row once. `counts` [num_experts] is scratch.
Count tokens_that_fit(ActivationFormat format,
                      const RowBounds& bounds,
                      const MoeInput& input,
                      TokenRow first,
                      std::span<uint32_t> counts);

}  // namespace afd::ops
