// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared memory of the parts between processes: for one session and all ranks that it sends to, by
// the layouts that the daemon creates them from.

#include "ops/fused_moe/amounts.h"
#include "ops/fused_moe/capability.h"
#include "proto/status.h"

namespace afd::ops {

// The session's stripes in the windows of config.num_ranks ranks, and its own window; with a weight
// behind each result where the ranks route. Errors: those of schedule::validate().
Result<Capacity> window_bytes(const FusedMoeConfig& config, bool ranks_route);

// The segments of a round of max_num_tokens tokens in blocks of `block_tokens`, at all ranks
// together: the rows, each once, and two blocks of results for each rank, however the rows are
// spread. Segments exist while their round does. Errors: kInvalidArgument: block_tokens is 0, more
// ranks or experts of one than the operators take.
Result<Capacity> two_phase_bytes(const FusedMoeConfig& config, size_t block_tokens);

}  // namespace afd::ops
