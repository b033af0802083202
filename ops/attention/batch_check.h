// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every kind of attention asks of an AttentionBatch before it writes anything. Internal to
// ops/attention/. Errors: kInvalidArgument names the token, its value and what is allowed.

#include <cstddef>

#include "ops/attention/rope.h"
#include "ops/format/attention_batch.h"
#include "proto/status.h"

namespace afd::ops {

// cache_index is -1 or a slot.
Result<> check_cache_slots(const AttentionBatch& batch, size_t num_slots);

// Positions are those of the table.
Result<> check_rope_positions(const AttentionBatch& batch, const RopeTable& rope);

// No position is negative, and the blocks up to it are blocks of the cache.
Result<> check_block_tables(const AttentionBatch& batch, size_t num_slots);

}  // namespace afd::ops
