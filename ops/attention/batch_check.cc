// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/batch_check.h"

#include "proto/failure.h"

namespace afd::ops {

Result<> check_cache_slots(const AttentionBatch& batch, size_t num_slots) {
    for (size_t t = 0; t < batch.num_tokens; ++t) {
        const int64_t slot = batch.cache_index[t];
        if (slot >= -1 && slot < static_cast<int64_t>(num_slots)) continue;
        return invalid_argument(
            "cache_index[{}] is {}; allowed are -1 (write nothing) and slots below {}",
            with(t, slot, num_slots));
    }
    return {};
}

Result<> check_rope_positions(const AttentionBatch& batch, const RopeTable& rope) {
    for (size_t t = 0; t < batch.num_tokens; ++t) {
        const int32_t position = batch.positions[t];
        if (position >= 0 && static_cast<size_t>(position) < rope.num_positions()) continue;
        return invalid_argument("positions[{}] is {}; the rope table has {} positions",
                                with(t, position, rope.num_positions()));
    }
    return {};
}

Result<> check_block_tables(const AttentionBatch& batch, size_t num_slots) {
    const auto num_blocks = static_cast<int64_t>(num_slots / kAttentionBlock);
    for (size_t t = 0; t < batch.num_tokens; ++t) {
        const int32_t position = batch.positions[t];
        if (position < 0) {
            return invalid_argument("positions[{}] is {}; it must not be negative",
                                    with(t, position));
        }
        const size_t last_block = static_cast<size_t>(position) / kAttentionBlock;
        for (size_t block = 0; block <= last_block; ++block) {
            const int32_t index = batch.block_tables[t][block];
            if (index >= 0 && index < num_blocks) continue;
            return invalid_argument("block_tables[{}][{}] is {}; the cache has {} blocks",
                                    with(t, block, index, num_blocks));
        }
    }
    return {};
}

}  // namespace afd::ops
